-- Whether a compiled domain may be served.
-- What must hold: after check() every field that the request path uses has its type and range, and no string can end a header
-- line; so nothing that comes later needs to look again. A fault is told by name, with the domain.
local address = require "headwater.address"
local byte = string.byte
local M = {}

--- Native limits exist for these; a domain with another profile is refused, never served without its limits.
M.PROFILES = { standard = "/", protected = "@protected", quarantine = "@quarantine" }
local HOSTS_MAX, CERTS_MAX, CHAIN_MAX_BYTES = 10000, 1000, 65536 + 16384

local fault
local function bad(what) fault = fault or what end

local function whole(t, key, low, high)
  local v = t[key]
  if type(v) ~= "number" or v % 1 ~= 0 or v < low or v > high then bad(key .. " is not a number of " .. low .. " to " .. high) end
end
local function flag(t, key)
  if type(t[key]) ~= "boolean" then bad(key .. " is not true or false") end
end
-- Sets of bytes; a loop over them is compiled, a pattern is not, and all domains pass here before the first request.
local function set_of(pattern)
  local set = {}
  for b = 0, 255 do set[b] = string.char(b):match(pattern) ~= nil end
  return set
end
local PRINTABLE, NAME, HEXADECIMAL = set_of("[!-~]"), set_of("[%w._-]"), set_of("[%x-]")
local function text(t, key, low, high, set)
  local v = t[key]
  if type(v) ~= "string" or #v < low or #v > high then return bad(key .. " is not allowed") end
  for i = 1, #v do
    if not set[byte(v, i)] then return bad(key .. " is not allowed") end
  end
end
local function match(t, key, high, pattern)
  local v = t[key]
  if type(v) ~= "string" or #v > high or not v:match(pattern) then bad(key .. " is not allowed") end
end
local function hostname(name)
  return type(name) == "string" and name == name:lower() and address.name(name:sub(1, 2) == "*." and name:sub(3) or name)
end

local function origin(o)
  if type(o) ~= "table" then return bad("origin is missing") end
  if o.scheme ~= "http" and o.scheme ~= "https" then bad("scheme is neither http nor https") end
  if type(o.host) ~= "string" or not (address.name(o.host) or address.parse(o.host)) then bad("host is not a name or an address") end
  text(o, "host_header", 1, 253, PRINTABLE)
  if o.sni ~= nil then text(o, "sni", 1, 253, NAME) end
  whole(o, "port", 1, 65535)
  whole(o, "connect_timeout_ms", 100, 10000)
  whole(o, "response_timeout_ms", 500, 60000)
  whole(o, "retries", 0, 2)
  flag(o, "verify_tls")
  flag(o, "websocket")
  if o.scheme == "https" and o.verify_tls and o.sni == nil and address.parse(o.host) then bad("verified https to an address needs sni") end
end

local function hosts(all)
  if type(all) ~= "table" then return bad("hosts is missing") end
  local n, at_hosts = 0, fault == nil
  for name, h in pairs(all) do
    n = n + 1
    if not hostname(name) then return bad("hostname is not allowed") end
    if type(h) ~= "table" then return bad("hostname has no origin") end
    origin(h.origin)
    if h.backup ~= nil then
      if type(h.backup) ~= "table" then return bad("backup is not an object") end
      origin(h.backup.origin)
      whole(h.backup, "failure_threshold", 1, 20)
      whole(h.backup, "recovery_threshold", 1, 20)
      whole(h.backup, "hold_down_seconds", 5, 3600)
      whole(h.backup, "failback_delay_seconds", 5, 86400)
    end
    if fault then
      fault = at_hosts and name .. ": " .. fault or fault
      return
    end
  end
  if n > HOSTS_MAX then bad("too many hostnames") end
end

local function cache(c)
  if type(c) ~= "table" then return bad("cache is missing") end
  flag(c, "enabled")
  flag(c, "respect_origin_headers")
  whole(c, "edge_ttl_seconds", 0, 31536000)
  whole(c, "browser_ttl_seconds", 0, 31536000)
  whole(c, "maximum_object_bytes", 1048576, 1073741824)
  whole(c, "stale_if_error_seconds", 0, 86400)
  whole(c, "stale_while_revalidate_seconds", 0, 86400)
  whole(c, "epoch", 0, 2 ^ 53)
end

local function security(s)
  if type(s) ~= "table" then return bad("security is missing") end
  if not M.PROFILES[s.profile] then bad("security profile is not supported") end
  whole(s, "body_bytes", 1, 16777216)
  whole(s, "header_bytes", 1024, 32768)
  whole(s, "cache_key_bytes", 256, 4096)
  whole(s, "origin_connect_ms", 100, 3000)
  whole(s, "origin_read_ms", 500, 30000)
  whole(s, "retries", 0, 2)
end

local function certs(all)
  if all == nil then return end
  if type(all) ~= "table" or #all > CERTS_MAX then return bad("certs is not a list") end
  for _, c in ipairs(all) do
    if type(c) ~= "table" or type(c.names) ~= "table" or #c.names == 0 then return bad("certificate has no names") end
    for _, name in ipairs(c.names) do
      if not hostname(name) then return bad("certificate name is not allowed") end
    end
    match(c, "chain", CHAIN_MAX_BYTES, "^%-%-%-%-%-BEGIN CERTIFICATE%-%-%-%-%-\n")
    match(c, "key_file", 128, "^keys/[%w-]+%.pem$")
  end
end

--- nil where `d` may be served, else the first fault found.
function M.check(d)
  fault = nil
  if type(d) ~= "table" then return "not an object" end
  text(d, "id", 36, 36, HEXADECIMAL)
  if not hostname(d.domain) then bad("domain is not a name") end
  whole(d, "revision", 0, 2 ^ 53)
  hosts(d.hosts)
  cache(d.cache)
  security(d.security)
  certs(d.certs)
  return fault
end

return M
