-- Which fields of a request, and of an answer, end at the edge.
-- What must hold: nothing passes to an origin that the cache's key does not hold and that origins are known to take for the host, the scheme, the
-- path, the method or the client's address, however many other fields stand before it; what Connection names is for one hop (RFC 9110 7.6.1),
-- but nobody takes away with it what the edge itself says.
local find = string.find

local M = {}
-- What the edge itself sends, or reads on this side.
local OWN = { ["x-forwarded-for"] = true, ["x-forwarded-proto"] = true, ["x-hw-o"] = true, ["x-hw-s"] = true, ["x-hw-c"] = true }
local STAYS = { host = true, ["content-length"] = true, ["transfer-encoding"] = true, connection = true, upgrade = true, via = true, ["cdn-loop"] = true,
  close = true, ["keep-alive"] = true, authorization = true }
local ENDS = {}
for name in ([[x-forwarded forwarded forwarded-for forwarded-host forwarded-proto x-host x-http-host-override x-http-method x-http-method-override
  x-method-override x-url-scheme front-end-https x-real-ip client-ip x-client-ip true-client-ip x-cluster-client-ip x-sendfile-type
  proxy proxy-connection proxy-authorization]]):gmatch("%S+") do ENDS[name] = true end
local PREFIXES = { "^x%-forwarded%-", "^x%-original%-", "^x%-rewrite%-", "^x%-accel%-", "^x%-hw" }

local function ends(name)
  if OWN[name] then return false end
  if ENDS[name] then return true end
  for i = 1, #PREFIXES do
    if find(name, PREFIXES[i]) then return true end
  end
  return false
end

--- Takes away from the request what ends here. `connection` is the client's field of that name. Answers whether a field that the client sent,
-- and that an answer may vary by, was taken because it was named there: such an answer is for nobody else.
function M.strip(connection)
  local fields = ngx.req.get_headers(0)
  for name in pairs(fields) do
    if ends(name) then ngx.req.clear_header(name) end
  end
  local taken = false
  for name in (connection or ""):lower():gmatch("[^,%s]+") do
    if fields[name] and not OWN[name] and not STAYS[name] then
      ngx.req.clear_header(name)
      taken = true
    end
  end
  return taken
end

-- Fields of an answer that no Connection takes away: what nginx makes itself, and what our own rules are made of.
local KEPT = { connection = true, close = true, ["keep-alive"] = true, date = true, server = true, ["content-length"] = true, ["content-type"] = true,
  ["transfer-encoding"] = true, ["cache-control"] = true, ["set-cookie"] = true, vary = true, age = true, ["x-hw"] = true }

--- Takes away from the answer what `connection`, the origin's field of that name, is for, and an offer to upgrade where nobody upgrades: an
-- answer of HTTP/2 that has one is broken.
function M.strip_answer(connection, upgraded)
  local header = ngx.header
  if not upgraded then header["Upgrade"] = nil end
  for name in (connection or ""):lower():gmatch("[^,%s]+") do
    if not KEPT[name] and not (upgraded and name == "upgrade") then header[name] = nil end
  end
end

return M
