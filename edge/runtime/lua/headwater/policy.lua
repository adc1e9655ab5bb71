-- What the shared cache may do with an answer (RFC 9111, 5861, 9213).
-- What must hold: private, no-store, Set-Cookie and Vary: * are never stored, whatever the domain's settings say; of repeated or
-- contradicting lifetimes the shortest counts; time spent upstream counts as age; must-revalidate forbids stale answers.
local M = {}

local SECONDS_MAX = 31536000 * 10
-- Stored with an explicit lifetime; stored by the domain's own lifetime.
local EXPLICIT = { [200] = true, [203] = true, [204] = true, [300] = true, [301] = true, [302] = true, [307] = true, [308] = true,
  [404] = true, [405] = true, [410] = true, [414] = true }
local DEFAULT = { [200] = true, [203] = true, [204] = true, [301] = true, [308] = true, [410] = true }

--- One text from a header that may have several lines.
function M.joined(v)
  return type(v) == "table" and table.concat(v, ", ") or v
end

--- Directives of a Cache-Control field: name -> argument or true. A repeated one keeps its smallest number, or what is less generous.
function M.directives(field)
  local out = {}
  local s, pos = M.joined(field) or "", 1
  while pos <= #s do
    local from, to, name = s:find("^[%s,]*([^%s,=]+)%s*", pos)
    if not from then break end
    pos = to + 1
    name = name:lower()
    local value = true
    if s:sub(pos, pos) == "=" then
      local _, quoted, text = s:find('^=%s*"([^"]*)"?', pos)
      if not quoted then _, quoted, text = s:find("^=%s*([^,]*)", pos) end
      value, pos = text:match("^%s*(.-)%s*$"), quoted + 1
    end
    local old = out[name]
    if old == nil then
      out[name] = value
    elseif old ~= true and value ~= true then
      local a, b = tonumber(old), tonumber(value)
      out[name] = (not a or not b) and "0" or (b < a and value or old)
    end
    local comma = s:find(",", pos, true)
    pos = comma and comma + 1 or #s + 1
  end
  return out
end

-- Whole seconds; what is no number is 0 (RFC 9111 4.2.1: treat as stale), what is absent is nil.
local function seconds(v)
  if v == nil then return nil end
  if v == true or not v:match("^%d+$") then return 0 end
  return math.min(tonumber(v), SECONDS_MAX)
end

-- Lifetime that the origin stated: s-maxage, max-age, Expires.
local function lifetime(cc, headers, now)
  local n = seconds(cc["s-maxage"]) or seconds(cc["max-age"])
  if n then return n end
  local expires = M.joined(headers["Expires"])
  if not expires then return nil end
  local at = ngx.parse_http_time(expires)
  local date = ngx.parse_http_time(M.joined(headers["Date"]) or "") or now
  return at and math.max(0, at - date) or 0
end

local function age_of(headers, now)
  local told = M.joined(headers["Age"])
  told = told and (told .. ","):match("^%s*(%d+)%s*,")            -- of several the first counts (RFC 9111 5.1)
  told = told and math.min(tonumber(told), 2 ^ 31) or 0
  local date = ngx.parse_http_time(M.joined(headers["Date"]) or "")
  return math.max(told, date and math.max(0, now - date) or 0, 0)
end

local function stale_windows(cc, c, explicit, out)
  local bound = cc["must-revalidate"] or cc["proxy-revalidate"] or cc["no-cache"]
  local error = seconds(cc["stale-if-error"])
  local swr = seconds(cc["stale-while-revalidate"])
  if not error and not cc["s-maxage"] then error = c.sie end       -- s-maxage implies proxy-revalidate
  if not swr and not explicit then swr = c.swr end                 -- the domain's window goes with the domain's own lifetime
  if bound then error, swr = 0, 0 end
  out.sie, out.swr = error or 0, swr or 0
end

--- Decides. `a` = {status, headers, cache = the domain's settings, now, length, default_before = a 304 renews an answer that was
-- stored under the domain's own lifetime, asked = the request has a condition, which only a revalidation has here, authorized = the request has Authorization}. Answers {born, store = bool, ttl, sie, swr, browser, by_default, keep = a 304 that says nothing}.
function M.decide(a)
  local headers, c, now = a.headers, a.cache, a.now
  local age = age_of(headers, now)
  local out = { born = now - age, store = false, ttl = 0, sie = 0, swr = 0, browser = -1 }
  if not c.on then return out end
  local cc = M.directives(headers["Cache-Control"])
  local hard = cc["private"] or cc["no-store"]
  if headers["CDN-Cache-Control"] then
    local targeted = M.directives(headers["CDN-Cache-Control"])
    local forbids = targeted["private"] or targeted["no-store"]
    if c.respect then cc, hard = targeted, forbids else hard = hard or forbids end      -- RFC 9213: it replaces the general field
  end
  if hard or headers["Set-Cookie"] or (M.joined(headers["Vary"]) or ""):find("*", 1, true) then return out end
  -- RFC 9111 3.5: what was answered to Authorization is everybody's only where the origin says so.
  if a.authorized and not (cc["public"] or cc["s-maxage"] or cc["must-revalidate"]) then return out end
  if a.length and a.length > c.max then return out end
  local explicit = c.respect and lifetime(cc, headers, now) or nil
  if c.respect and cc["no-cache"] then return out end
  local renewed = a.status == 304
  if renewed and not a.asked then return out end                  -- an answer to a condition that nobody set
  if renewed and not explicit and c.respect and not a.default_before then
    out.keep = true
    return out
  end
  local known = renewed or (explicit and EXPLICIT or DEFAULT)[a.status]
  if not known then return out end
  local ttl = (explicit or c.edge) - (explicit and age or 0)
  if ttl <= 0 then return out end
  out.store, out.ttl, out.by_default = true, ttl, not explicit
  stale_windows(c.respect and cc or {}, c, explicit, out)
  if not c.respect or not (explicit or headers["Cache-Control"]) then out.browser = c.browser end
  return out
end

return M
