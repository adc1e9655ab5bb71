-- The client's side of a request.
-- What must hold: the entry is looked up once, at the start, and all that the request needs later is put into variables then, so the
-- request keeps its generation; nothing here waits; a host that this cell does not serve, or that is not of the certificate's
-- domain, gets no content of anybody. This runs for every cache hit: each line is paid for.
local state = require "headwater.state"
local var, header = ngx.var, ngx.header
local byte, sub, lower = string.byte, string.sub, string.lower
local stored = ngx.shared.hw_stored
local lrucache = require "resty.lrucache"

local M = {}
local PARSED_MAX_BYTES = 512
local PARSED_MAX, PASS_MAX, PASS_URI_MAX_BYTES, PASS_SECONDS = 4096, 8192, 1024, 30
local REVALIDATED_SECONDS = 86400 * 30
local PREFIX = ngx.config.prefix()
local PORT_MAX = 65535
local NO_VERSION = ("\0"):rep(8)
local STORED = { HIT = true, STALE = true, UPDATING = true, REVALIDATED = true }
local passes = assert(lrucache.new(PASS_MAX))

local function refuse(status)
  var.hw_no = status
  return ""
end

-- What only profiles narrower than the server's own numbers need.
local function narrow(h)
  local s = h.narrow
  if (tonumber(var.request_length) or 0) > s.header then return refuse("431") end
  if (tonumber(var.content_length) or 0) > s.body then return refuse("413") end
  if #var.request_uri > s.key then var.hw_by = "1"; var.hw_nc = "1" end
  var.hw_no = s.location
  return h.prefix
end

local function key_of(prefix)
  return ngx.md5_bin(prefix .. var.scheme .. "://" .. var.host .. var.request_uri)
end

-- A request with Authorization reads the cache only where the answer to such a request was called public.
local function serve(h)
  var.hw_o = h.packed
  var.hw_rev = h.rev
  if not h.cached then
    var.hw_by = "1"; var.hw_nc = "1"
  elseif h.pass then
    if h.pass < ngx.time() then
      h.pass = nil
    elseif passes:get(h.prefix .. var.host .. var.request_uri) then
      var.hw_by = "1"
    end
  end
  if var.http_authorization and not stored:get("p" .. key_of(h.prefix)) then var.hw_by = "1" end
  if h.narrow then return narrow(h) end
  return h.prefix
end

local function unknown(host)
  local sent = var.http_host
  if not sent or sent == "" or not host:match("^[%w._-]+$") then return refuse("400") end
  return refuse("421")
end

-- nginx takes the name of the Host field and does not look at the port: one that cannot be makes the whole field none.
local function has_port(sent)
  local port = sent:match("^[^:]*:(%d*)$")
  return port and (#port < 5 or (tonumber(port) or PORT_MAX + 1) <= PORT_MAX) or not sent:find(":", 1, true)
end

--- Plain HTTP: the host alone decides.
function M.plain()
  local host, sent = var.host, var.http_host
  if sent and sent ~= host and not has_port(sent) then return refuse("400") end
  local h = state.entries.young[host] or state.find(host)
  if not h then return unknown(host) end
  return serve(h)
end

--- TLS: the host must be of the domain whose certificate was shown.
function M.tls()
  local host, sent = var.host, var.http_host
  if sent and sent ~= host and not has_port(sent) then return refuse("400") end
  local h = state.entries.young[host] or state.find(host)
  if not h then return unknown(host) end
  local sni = var.ssl_server_name
  if sni ~= host then
    local id = sni and state.owner(lower(sni))
    if id ~= h.id then return refuse("421") end
  end
  return serve(h)
end

local TITLES = { [400] = "Bad Request", [413] = "Content Too Large", [421] = "Misdirected Request", [431] = "Request Header Fields Too Large" }

--- The answer to a request that was not placed.
function M.answer(status)
  ngx.status = status
  header["Content-Type"] = "text/plain; charset=utf-8"
  header["Cache-Control"] = "no-store"
  ngx.say(status, " ", TITLES[status])
end

--- That answer, or the way to narrower limits. All but 421 end the connection, since what follows on it may not be a request: nginx does that
-- for a location without keep-alive. A field Connection from here would end nothing, and no answer of HTTP/2 may have one.
function M.refuse()
  local status = tonumber(var.hw_no)
  if not status then return ngx.exec(var.hw_no) end
  if status ~= 421 then return ngx.exec("@close") end
  M.answer(status)
end

-- X-HW of the origin side: "born ttl browser flag cache-control", memorized because all hits of an object carry the same text.
local parsed, parsed_count = {}, 0
local function parse(x)
  local born, ttl, browser, flag, cc = x:match("^(%d+) (%d+) (-?%d+) ([%l-]) ?(.*)$")
  local p = { born = tonumber(born) or 2 ^ 53, ttl = tonumber(ttl) or 0, browser = tonumber(browser) or -1, flag = flag ~= "-" and flag, cc = cc ~= "" and cc }
  if #x > PARSED_MAX_BYTES then return p end
  if parsed_count >= PARSED_MAX then parsed, parsed_count = {}, 0 end
  parsed[x], parsed_count = p, parsed_count + 1
  return p
end

-- A 304 renews an answer without changing its stored header: the time of the last one is kept beside it.
local function revalidated(p, age)
  local status = var.upstream_cache_status
  local key = "r" .. key_of(var.hw_d)
  if status == "REVALIDATED" then
    stored:set(key, ngx.time(), REVALIDATED_SECONDS)
    return 0
  end
  local at = status == "HIT" and stored:get(key)
  return at and at > p.born and ngx.time() - at or age
end

-- Answers that may not be stored are asked for side by side from now on, not one after the other behind the cache's lock.
local function pass(h)
  local uri = var.request_uri
  if #uri > PASS_URI_MAX_BYTES then return end
  h.pass = ngx.time() + PASS_SECONDS
  passes:set(h.prefix .. var.host .. uri, true, PASS_SECONDS)
end

-- RFC 9111 4.4: an unsafe method that succeeded makes what is stored under its URI invalid. Workers may hold the file open: its first
-- bytes, which nginx reads for each hit, are made those of no version before the name goes.
local function invalidate()
  local rest = "://" .. var.host .. var.request_uri
  for _, scheme in ipairs { "http", "https" } do
    local name = ngx.md5(var.hw_d .. scheme .. rest)
    local path = PREFIX .. "cache/" .. sub(name, 32, 32) .. "/" .. sub(name, 30, 31) .. "/" .. name
    local file = io.open(path, "r+b")
    if file then
      file:write(NO_VERSION)
      file:close()
      os.remove(path)
    end
  end
end

-- u: an unsafe method succeeded; n: the answer may not be stored; p: it may, in spite of Authorization.
local function flagged(p)
  if p.flag == "p" then
    if var.upstream_cache_status ~= "HIT" then stored:set("p" .. key_of(var.hw_d), true, p.ttl) end
    return
  end
  if p.flag == "u" then
    invalidate()
  elseif p.flag == "n" then
    local h = state.find(var.host)
    if h and h.cached then pass(h) end
  end
end

--- Age, the browser's lifetime, and what the origin side flagged.
function M.header()
  local x = var.upstream_http_x_hw
  if not x or x == "" then return end
  local p = parsed[x] or parse(x)
  local age = ngx.time() - p.born
  if p.ttl > 0 and age > p.ttl then age = revalidated(p, age) end
  if age > 0 then
    header["Age"] = age
  elseif p.ttl > 0 and STORED[var.upstream_cache_status] then
    header["Age"] = 0
  end
  if p.browser >= 0 then
    header["Cache-Control"] = "max-age=" .. p.browser + (age > 0 and age or 0)
  elseif p.cc then
    header["Cache-Control"] = p.cc
  end
  if p.flag then flagged(p) end
end

return M
