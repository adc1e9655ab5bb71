-- The origin's side of a request.
-- What must hold: all that it acts on came pinned in X-HW-O; the connection goes to an address that was judged, and it is judged
-- again in balance() on the very bytes; only methods that may be repeated are sent twice; what the origin says in our own headers
-- (X-HW, X-Accel-*) is never believed.
local cjson = require "cjson.safe"
local lrucache = require "resty.lrucache"
local balancer = require "ngx.balancer"
local resolve = require "headwater.resolve"
local policy = require "headwater.policy"
local health = require "headwater.health"
local request = require "headwater.request"
local var, header = ngx.var, ngx.header

local M = {}
local unpacked = assert(lrucache.new(4000))
local stored = ngx.shared.hw_stored
local HASH_LENGTH = 8       -- see domains.lua
local WEBSOCKET_READ_MS = 3600000
local STORED_SECONDS = 86400 * 30
local REPEATABLE = { GET = true, HEAD = true, OPTIONS = true, PUT = true, DELETE = true }
local SAFE = { GET = true, HEAD = true, OPTIONS = true }
local function refuse(status, error, detail)
  header["Proxy-Status"] = "headwater; error=" .. error .. (detail and '; details="' .. detail:gsub('[^%w%-%._ ]', "") .. '"' or "")
  ngx.ctx.final = true
  var.hw_err = status       -- @backup keeps it
  return ngx.exit(status)
end

local function request_of()
  local text = var.http_x_hw_o
  local p = text and unpacked:get(text)
  if not p and text then
    p = cjson.decode(text:sub(HASH_LENGTH + 1))
    if p then
      p.health = p.b and p.d .. "|" .. p.n
      unpacked:set(text, p)
    end
  end
  return p
end

-- A body of GET or HEAD means nothing (RFC 9110 9.3.1) and would not be in the cache's key.
local function drop_body()
  if (tonumber(var.content_length) or 0) > 0 or var.http_transfer_encoding then
    ngx.req.read_body()
    ngx.req.set_body_data("")
    ngx.req.clear_header("Content-Length")
    ngx.req.clear_header("Content-Type")
  end
end

local function first(p, ctx)
  local method = ngx.req.get_method()
  if request.strip(var.http_x_hw_c) or #var.request_uri > p.s.uri then var.hw_one = "1" end
  if (M.cdn_loop_count(var.http_cdn_loop)) > 1 then return refuse(508, "proxy_loop_detected") end
  if (tonumber(var.content_length) or 0) > p.s.body then return refuse(413, "http_request_error") end
  if method == "GET" or method == "HEAD" then
    local cc = var.http_cache_control
    if cc and cc:lower():find("only-if-cached", 1, true) then return refuse(504, "http_request_denied") end
    drop_body()
  end
  local pick, trial = "primary", false
  if p.health then pick, trial = health.pick(p.health) end
  ctx.trial = trial
  return pick
end

--- How often our own name stands in CDN-Loop (RFC 8586). Our client's side has added it once.
function M.cdn_loop_count(value)
  local n = 0
  for id in (value or ""):gmatch("[^,]+") do
    if id:match("^%s*headwater%s*$") or id:match("^%s*headwater%s*;") then n = n + 1 end
  end
  return n
end

local function unverified(o)
  return o.scheme == "https" and not o.verify_tls
end

-- After the primary failed: the backup answers, where there is one and the request may be repeated.
local function second(p)
  if not p.b or var.hw_pick == "backup" or not SAFE[ngx.req.get_method()] or (var.hw_err ~= "" and var.hw_err ~= "502") then
    ngx.ctx.final = true
    local status = tonumber(var.hw_err) or tonumber((var.upstream_status or ""):match("(50[24])%D*$")) or 502
    return ngx.exit(status)
  end
  if var.hw_pick == "primary" then health.failed(p.health, p.b) end
  return "backup"
end

--- Access phase of all four locations. `where`: first, unverified, backup, backup_unverified.
function M.access(where)
  local ctx = ngx.ctx
  local p = request_of()
  if not p then return ngx.exit(403) end
  ctx.p = p
  local pick = var.hw_pick
  if where == "first" then
    pick = first(p, ctx)
    if not pick then return end
    var.hw_pick = pick
  elseif where == "backup" then
    pick = second(p)
    if not pick then return end
    var.hw_pick = pick
  end
  ctx.pick = pick
  local o = pick == "backup" and p.b.origin or p.o
  if unverified(o) and (where == "first" or where == "backup") then
    return ngx.exec(where == "first" and "@unverified" or "@backup_unverified")
  end
  local list, error, detail = resolve.addresses(o.host)
  ctx.o = o
  if not list then
    ngx.log(ngx.WARN, "origin of ", p.n, " refused: ", o.host, ": ", detail or error)
    if pick == "primary" and p.b and (where == "first" or where == "unverified") then return ngx.exec("@backup") end
    return refuse(502, error, detail)
  end
  ctx.list = list
  var.hw_host, var.hw_scheme = o.host_header, o.scheme
  var.hw_sni = o.sni or o.host_header:gsub(":%d+$", "")
  local upgrade = var.http_upgrade
  if o.websocket and upgrade and upgrade ~= "" then
    var.hw_up, var.hw_cn = "websocket", "upgrade"
    ctx.websocket = true
  end
end

--- Balancer phase: one of the judged addresses, judged again.
function M.balance()
  local ctx = ngx.ctx
  local p, o, list = ctx.p, ctx.o, ctx.list
  if not list then return ngx.exit(502) end
  local try = (ctx.try or 0) + 1
  ctx.try = try
  local retries = math.min(o.retries, p.s.retries)
  if try == 1 and retries > 0 and REPEATABLE[ngx.req.get_method()] then balancer.set_more_tries(retries) end
  local peer = list[(try - 1) % #list + 1]
  if resolve.judge(peer.bytes) then return ngx.exit(502) end
  local read = ctx.websocket and WEBSOCKET_READ_MS or math.min(o.response_timeout_ms, p.s.read)
  balancer.set_timeouts(math.min(o.connect_timeout_ms, p.s.connect) / 1000, read / 1000, read / 1000)
  local ok, err = balancer.set_current_peer(peer.text, o.port)
  if not ok then
    ngx.log(ngx.ERR, "peer: ", err)
    return ngx.exit(502)
  end
end

local function stored_key(p)
  return ngx.md5_bin(p.s.key .. (var.http_x_forwarded_proto or "") .. "://" .. var.host .. var.request_uri)
end

-- The rules of the cache as nginx on the client's side understands them.
local function cache_headers(d)
  local cc = {}
  if d.store then
    cc[1] = "s-maxage=" .. d.ttl      -- nginx finds this one first
    if d.swr > 0 then cc[#cc + 1] = "stale-while-revalidate=" .. d.swr end
    if d.sie > 0 then cc[#cc + 1] = "stale-if-error=" .. d.sie end
  elseif not d.keep then
    cc[1] = "no-store"
  end
  header["Cache-Control"] = cc[1] and table.concat(cc, ",") or nil
end

-- What the next revalidation or failure has to know of an answer that is stored now. Forgetting it is safe: a 304 then renews
-- nothing and an error is shown as it is.
local function remember(p, d, headers, key)
  if d.by_default and (headers["ETag"] or headers["Last-Modified"]) then stored:set("d" .. key, true, STORED_SECONDS) end
  if d.sie > 0 then
    local till = ngx.time() + d.ttl + d.sie
    stored:set("s" .. key, till, d.ttl + d.sie)
  end
end

-- n: not storable by what the origin said (never by what this client sent); u: an unsafe method succeeded; p: stored in spite of
-- Authorization, because the origin calls it public.
local function flags_of(d, status, method, own)
  if not SAFE[method] then return status >= 200 and status < 400 and "u" or "-" end
  if d.store and var.http_authorization then return "p" end
  if method == "GET" and status < 500 and status ~= 304 and not own and not d.store and not d.keep and not var.http_authorization then
    return "n"
  end
  return "-"
end

-- The client's side has an expired answer that may still serve: a connection that ends without an answer makes nginx use it.
local function stale_serves(status, key)
  if status ~= 500 and status ~= 502 and status ~= 503 and status ~= 504 or var.http_x_hw_s ~= "EXPIRED" then return false end
  local till = stored:get("s" .. key)
  return till ~= nil and till >= ngx.time()
end

-- What a shared cache has to know and the origin left out.
local function complete(d, status, headers)
  if (policy.joined(headers["Date"]) or "") == "" then header["Date"] = ngx.http_time(ngx.time()) end
  if headers["Content-Encoding"] then
    local vary = policy.joined(headers["Vary"]) or ""
    if not vary:lower():find("accept-encoding", 1, true) then header["Vary"] = vary == "" and "Accept-Encoding" or vary .. ", Accept-Encoding" end
  end
  if d.store and status == 200 and not headers["Accept-Ranges"] then header["Accept-Ranges"] = "bytes" end
end

-- Answers that are none: an interim one, which nginx 1.22 takes for the final one, a change of protocols that was not offered, and lengths that
-- contradict each other, of which it takes the last (RFC 9112 6.3).
local function impossible(status, ctx)
  if status < 200 and not (status == 101 and ctx.websocket) then return true end
  local told, taken = var.upstream_http_content_length, var.sent_http_content_length
  return told ~= nil and taken ~= nil and tonumber(told) ~= tonumber(taken)
end

--- Header filter: the origin's rules out, ours in.
function M.header()
  local ctx = ngx.ctx
  local p = ctx.p
  if not p then return end
  local headers = ngx.resp.get_headers(200)
  local method, status = ngx.req.get_method(), ngx.status
  local own = ctx.final or not ctx.list
  local key = method == "GET" and stored_key(p)
  if impossible(status, ctx) then return ngx.exit(ngx.ERROR) end
  if key and stale_serves(status, key) then return ngx.exit(ngx.ERROR) end
  local d = policy.decide {
    status = status, headers = headers, cache = p.c, now = ngx.time(), length = tonumber(var.sent_http_content_length),
    authorized = var.http_authorization ~= nil,
    asked = var.http_if_none_match ~= nil or var.http_if_modified_since ~= nil,
    default_before = key and status == 304 and stored:get("d" .. key) ~= nil,
  }
  if var.hw_one ~= "" then d.store, own = false, true end      -- for this request alone, by what its client sent
  if key and d.store then remember(p, d, headers, key) end
  local client_cc = policy.joined(headers["Cache-Control"])
  if ctx.final or not ctx.list or (status == 502 or status == 504) and not client_cc then client_cc = "no-store" end
  request.strip_answer(var.upstream_http_connection, status == 101)
  cache_headers(d)
  complete(d, status, headers)
  if d.browser >= 0 then header["Expires"] = nil end
  header["X-HW"] = d.born .. " " .. d.ttl .. " " .. d.browser .. " " .. flags_of(d, status, method, own) .. " " .. (d.browser < 0 and client_cc or "")
  header["Age"] = nil
  header["CDN-Cache-Control"] = nil
  header["Cache-Tag"] = nil
end

--- Log phase: the health of the primary, for hostnames with a backup.
function M.log()
  local ctx = ngx.ctx
  local p = ctx.p
  if not p or not p.health or ctx.pick ~= "primary" or not ctx.list then return end
  local last = (var.upstream_status or ""):match("(%d+)%s*$")
  if last == "502" or last == "504" or not last then
    health.failed(p.health, p.b)
  else
    health.answered(p.health, p.b)
  end
end

return M
