-- What a worker keeps of each domain: one string, and an index from hostnames to it.
-- What must hold: a worker's memory grows with the text of its domains and not with what was asked of it: decoded entries are few and
-- bounded; an entry that a request holds is never changed; a record is made of checked domains alone, so reading one cannot fail.
-- Strings cost the collector next to nothing, and maps are split so that none is ever grown at once while requests wait.
local cjson = require "cjson.safe"
local check = require "headwater.check"
local bit = require "bit"
local concat, format, byte, find, sub, match, gmatch = table.concat, string.format, string.byte, string.find, string.sub, string.match, string.gmatch
local crc32, band = ngx.crc32_short, bit.band

local M = {}
local PARTS = 256
local POLICIES_MAX = 1024
local HEAD = 9             -- lines before the origins; the last of them tells how many these are
local SHARED_MAX = 16       -- how many origins of a domain are looked through for an equal one

--- A map from strings in parts.
local Map = {}
Map.__index = Map
M.Map = Map

function Map.new()
  local m = setmetatable({}, Map)
  for i = 0, PARTS - 1 do m[i] = {} end
  return m
end

function Map:get(key) return self[band(crc32(key), PARTS - 1)][key] end
function Map:set(key, value) self[band(crc32(key), PARTS - 1)][key] = value end

--- Calls `f` with each key and value.
function Map:each(f)
  for i = 0, PARTS - 1 do
    for key, value in pairs(self[i]) do f(key, value) end
  end
end

--- Entries that were used lately, at most twice `max`: what is not used again while `max` others come is forgotten.
local Recent = {}
Recent.__index = Recent
M.Recent = Recent

function Recent.new(max)
  return setmetatable({ young = {}, old = {}, count = 0, max = max }, Recent)
end

--- An entry that is not in `young`, which callers look into themselves.
function Recent:again(key)
  local value = self.old[key]
  if value then self:keep(key, value) end
  return value
end

function Recent:keep(key, value)
  if self.count >= self.max then self.young, self.old, self.count = {}, self.young, 0 end
  self.young[key], self.count = value, self.count + 1
end

function Recent:forget(key)
  self.young[key], self.old[key] = nil, nil
end

-- A record: lines that are parted by line feeds, fields that are parted by tabs; check.lua lets neither into a string.
--   a hash, id, domain, revision, generation, cache, security, certificates as JSON or nothing, number of origins, the origins, the hostnames
local TAB = "\t"
local function cache_text(c)
  return (c.enabled and "1\t" or "0\t") .. (c.respect_origin_headers and "1\t" or "0\t") .. c.edge_ttl_seconds .. TAB .. c.browser_ttl_seconds .. TAB
    .. c.maximum_object_bytes .. TAB .. c.stale_if_error_seconds .. TAB .. c.stale_while_revalidate_seconds .. TAB .. c.epoch
end

local function security_text(s)
  return s.profile .. TAB .. s.body_bytes .. TAB .. s.header_bytes .. TAB .. s.cache_key_bytes .. TAB .. s.origin_connect_ms .. TAB .. s.origin_read_ms
    .. TAB .. s.retries
end

-- The hostname itself as Host header is left out, so that the hostnames of a domain share their origin's line.
local function origin_text(o, name)
  return o.scheme .. TAB .. o.host .. TAB .. o.port .. TAB .. (o.host_header == name and "" or o.host_header) .. TAB .. (o.sni or "")
    .. (o.verify_tls and "\t1\t" or "\t0\t") .. o.connect_timeout_ms .. TAB .. o.response_timeout_ms .. TAB .. o.retries .. (o.websocket and "\t1" or "\t0")
end

-- Used again and again: a hundred thousand domains are written in one go.
local origins, origin_count, host_lines = {}, 0, {}       -- of the domain that is being written
local function line_of(o, name)
  local text = origin_text(o, name)
  for i = 1, origin_count do
    if origins[i] == text then return i end
    if i == SHARED_MAX then break end
  end
  origin_count = origin_count + 1
  origins[origin_count] = text
  return origin_count
end

-- LuaJIT hashes long strings by a few of their bytes. Records of domains that are alike would all be one chain of its table, and every new
-- one would be compared with all: so what is kept begins with a hash of the whole name, and is put together in one go.
local function hashed(s) return format("%08x", crc32(s)) end

--- The record of a checked domain. `n` is the generation that brings it.
local out = {}
function M.record(d, n)
  out[1], out[2], out[3], out[4], out[5] = hashed(d.id), d.id, d.domain, d.revision, n
  out[6], out[7], out[8] = cache_text(d.cache), security_text(d.security), d.certs and #d.certs > 0 and cjson.encode(d.certs) or ""
  origin_count = 0
  local count = 0
  for name, h in pairs(d.hosts) do
    local b = h.backup
    count = count + 1
    host_lines[count] = name .. TAB .. line_of(h.origin, name) .. (b and TAB .. line_of(b.origin, name) .. TAB .. b.failure_threshold .. TAB
      .. b.recovery_threshold .. TAB .. b.hold_down_seconds .. TAB .. b.failback_delay_seconds or "")
  end
  out[HEAD] = origin_count
  for i = 1, origin_count do out[HEAD + i] = origins[i] end
  local at = HEAD + origin_count
  for i = 1, count do out[at + i] = host_lines[i] end
  out[at + count + 1] = ""
  return concat(out, "\n", 1, at + count + 1)
end

local function lines_from(r, pos, count)
  local out = {}
  for i = 1, count do
    local to = find(r, "\n", pos, true)
    out[i], pos = sub(r, pos, to - 1), to + 1
  end
  return out, pos
end

local function past(r, pos, count)
  for _ = 1, count do pos = find(r, "\n", pos, true) + 1 end
  return pos
end

--- The hostnames of a record, as they stand in the index: that of *.example.com is /example.com, which no Host can be.
function M.names(r)
  local at = past(r, 1, HEAD - 1)
  local pos = past(r, at, 1)
  pos = past(r, pos, tonumber(sub(r, at, pos - 2)))
  local out, n = {}, 0
  while pos <= #r do
    local tab = find(r, TAB, pos, true)
    n = n + 1
    out[n] = byte(r, pos) == 42 and "/" .. sub(r, pos + 2, tab - 1) or sub(r, pos, tab - 1)
    pos = past(r, tab, 1)
  end
  return out
end

local NONE = {}

--- The certificates of a record.
function M.certs(r)
  local pos = past(r, 1, HEAD - 2)
  if byte(r, pos) == 10 then return NONE end
  return cjson.decode(sub(r, pos, past(r, pos, 1) - 2))
end

-- Most domains have the same few settings: they share them. `n` of the memory is bounded by beginning anew.
local policies, policy_count = {}, 0
local function policy(text, make)
  local p = policies[text]
  if p then return p end
  if policy_count >= POLICIES_MAX then policies, policy_count = {}, 0 end
  p = make(text)
  policies[text], policy_count = p, policy_count + 1
  return p
end

local function cache_of(text)
  local on, respect, edge, browser, max, sie, swr, epoch = match(text, "^(%d)\t(%d)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(.+)$")
  return { on = on == "1", respect = respect == "1", edge = tonumber(edge), browser = tonumber(browser), max = tonumber(max), sie = tonumber(sie),
    swr = tonumber(swr) }, epoch
end

local function security_of(text)
  local profile, body, head, key, connect, read, retries = match(text, "^(%w+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)\t(%d+)$")
  return { profile = profile, body = tonumber(body), header = tonumber(head), key = tonumber(key), connect = tonumber(connect), read = tonumber(read),
    retries = tonumber(retries), location = profile ~= "standard" and check.PROFILES[profile] or nil }
end

local function origin_of(text, name)
  local f, n = {}, 0
  for part in gmatch(text .. "\t", "([^\t]*)\t") do
    n = n + 1
    f[n] = part
  end
  return { scheme = f[1], host = f[2], port = tonumber(f[3]), host_header = f[4] == "" and name or f[4], sni = f[5] ~= "" and f[5] or nil,
    verify_tls = f[6] == "1", connect_timeout_ms = tonumber(f[7]), response_timeout_ms = tonumber(f[8]), retries = tonumber(f[9]), websocket = f[10] == "1" }
end

--- The entry of one hostname (as it stands in the index) on the request path: everything computed that a request needs of it.
function M.entry(r, key)
  local name = byte(key) == 47 and "*." .. sub(key, 2) or key
  local head, pos = lines_from(r, 1, HEAD)
  local origins, at = lines_from(r, pos, tonumber(head[HEAD]))
  local from, to = find(r, "\n" .. name .. "\t", at - 1, true)
  if not from then return nil end
  local line = sub(r, to + 1, find(r, "\n", to, true) - 1)
  local first, second, fails, good, hold, delay = match(line, "^(%d+)\t?(%d*)\t?(%d*)\t?(%d*)\t?(%d*)\t?(%d*)$")
  local c, epoch = cache_of(head[6])
  local s = policy(head[7], security_of)
  local prefix = head[2] .. ":" .. epoch .. ":"
  local rev = head[5] .. "." .. head[4]
  -- Everything the origin side has to know, as one header value.
  local packed = hashed(name .. rev) .. cjson.encode {
    d = head[2], n = name, r = rev, o = origin_of(origins[tonumber(first)], name), c = c,
    b = second ~= "" and { origin = origin_of(origins[tonumber(second)], name), failure_threshold = tonumber(fails), recovery_threshold = tonumber(good),
      hold_down_seconds = tonumber(hold), failback_delay_seconds = tonumber(delay) } or nil,
    s = { body = s.body, uri = s.key, connect = s.connect, read = s.read, retries = s.retries, key = prefix },
  }
  return { id = head[2], prefix = prefix, rev = rev, packed = packed, cached = c.on, narrow = s.location and s or nil }
end

return M
