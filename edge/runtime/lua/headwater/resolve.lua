-- Names of origins to addresses that may be connected to.
-- What must hold: the system's resolver and hosts file are never asked; every address of every answer goes through the judge; an
-- answer is used for at most its TTL (bounded), or longer only while no resolver answers; one bad answer never poisons another name.
local address = require "headwater.address"
local cell = require "headwater.cell"
local lrucache = require "resty.lrucache"
local bit = require "bit"
local byte, char, concat = string.byte, string.char, table.concat

local TTL_MIN_SECONDS, TTL_MAX_SECONDS, NEGATIVE_SECONDS = 1, 300, 2
local STALE_MAX_SECONDS, AGAIN_SECONDS = 3600, 3
local TIMEOUT_MS, TRIES = 1000, 2
local ADDRESSES_MAX, ENTRIES_MAX = 8, 20000
local TYPE_A, TYPE_AAAA = 1, 28

local shared = ngx.shared.hw_dns      -- what any worker learned last: for the time when no resolver answers

local M = { judge = address.judge(cell) }
local cache = assert(lrucache.new(ENTRIES_MAX))
local servers = {}
for _, s in ipairs(cell.resolvers) do
  local host, port = s:match("^%[?([^%]]+)%]?:(%d+)$")
  local bytes = host and address.parse(host)
  assert(bytes, "cell.json: not a resolver: " .. s)
  servers[#servers + 1] = { #bytes == 16 and "[" .. host .. "]" or host, tonumber(port) }
end

local function seed()
  local f = assert(io.open("/dev/urandom", "rb"))
  local a, b, c, d = byte(f:read(4), 1, 4)
  f:close()
  math.randomseed(((a * 256 + b) * 256 + c) * 256 + d)
end
local seeded

local function question(name, qtype)
  local labels = {}
  for label in name:gmatch("[^.]+") do labels[#labels + 1] = char(#label) .. label end
  return concat(labels) .. "\0" .. char(0, qtype, 0, 1)
end

local function skip_name(s, pos)
  for _ = 1, 128 do
    local n = byte(s, pos)
    if not n then return nil end
    if n == 0 then return pos + 1 end
    if n >= 192 then return pos + 2 end
    pos = pos + 1 + n
  end
end

-- The addresses of one answer, nil where it is not an answer to this question.
local function read(s, id, q, qtype)
  if #s < 12 + #q or s:sub(1, 2) ~= id then return nil, "foreign answer" end
  local flags, code = byte(s, 3), bit.band(byte(s, 4), 15)
  if flags < 128 or s:sub(13, 12 + #q):lower() ~= q:lower() then return nil, "foreign answer" end
  if bit.band(flags, 2) ~= 0 then return nil, "truncated" end
  if code == 3 then return {}, NEGATIVE_SECONDS end
  if code ~= 0 then return nil, "rcode " .. code end
  local out, ttl = {}, TTL_MAX_SECONDS
  local pos = 13 + #q
  for _ = 1, byte(s, 7) * 256 + byte(s, 8) do
    pos = skip_name(s, pos)
    if not pos or #s < pos + 9 then return nil, "short answer" end
    local t = byte(s, pos) * 256 + byte(s, pos + 1)
    local a, b, c, d = byte(s, pos + 4, pos + 7)
    local len = byte(s, pos + 8) * 256 + byte(s, pos + 9)
    local data = s:sub(pos + 10, pos + 9 + len)
    pos = pos + 10 + len
    ttl = math.min(ttl, ((a * 256 + b) * 256 + c) * 256 + d)
    if t == qtype and #data == len and (len == 4 or len == 16) and #out < ADDRESSES_MAX then out[#out + 1] = data end
  end
  return out, #out == 0 and NEGATIVE_SECONDS or math.max(ttl, TTL_MIN_SECONDS)
end

local function exchange(server, id, q, tcp)
  local packet = id .. char(1, 0, 0, 1, 0, 0, 0, 0, 0, 0) .. q
  if not tcp then
    local sock = ngx.socket.udp()
    sock:settimeout(TIMEOUT_MS)
    local ok, err = sock:setpeername(server[1], server[2])
    if not ok then return nil, err end
    ok, err = sock:send(packet)
    local data
    if ok then data, err = sock:receive(4096) end
    sock:close()
    return data, err
  end
  local sock = ngx.socket.tcp()
  sock:settimeout(TIMEOUT_MS)
  local ok, err = sock:connect(server[1], server[2])
  if not ok then return nil, err end
  sock:send(char(math.floor(#packet / 256), #packet % 256) .. packet)
  local head = sock:receive(2)
  local data = head and sock:receive(byte(head, 1) * 256 + byte(head, 2))
  sock:close()
  return data, "tcp"
end

local function ask(name, qtype)
  if not seeded then seed(); seeded = true end
  local q, last = question(name, qtype), "no resolver"
  for try = 1, TRIES * #servers do
    local server = servers[(try - 1) % #servers + 1]
    local id = char(math.random(0, 255), math.random(0, 255))
    local data, err = exchange(server, id, q)
    local list, ttl
    if data then list, ttl = read(data, id, q, qtype) else ttl = err end
    if not list and ttl == "truncated" then
      data = exchange(server, id, q, true)
      if data then list, ttl = read(data, id, q, qtype) end
    end
    if list then return list, ttl end
    last = ttl
  end
  return nil, last
end

local function judged(list)
  local out, why = {}, nil
  for _, b in ipairs(list) do
    local reason = M.judge(b)
    if reason then why = reason else out[#out + 1] = { bytes = b, text = #b == 16 and "[" .. address.text(b) .. "]" or address.text(b) } end
  end
  if #out == 0 then return nil, why and "destination_ip_prohibited" or "dns_error", why end
  return out
end

local function keep(host, list)
  local parts = {}
  for i, b in ipairs(list) do parts[i] = char(#b) .. b end
  shared:set(host, concat(parts), STALE_MAX_SECONDS)
end

local function recall(host)
  local s, out, pos = shared:get(host) or "", {}, 1
  while pos < #s do
    local n = byte(s, pos)
    out[#out + 1] = s:sub(pos + 1, pos + n)
    pos = pos + 1 + n
  end
  return out
end

--- Addresses of an origin's host (may wait for the resolver): a list, or nil, an error of RFC 9209, and the reason.
function M.addresses(host)
  local literal = address.parse(host)
  if literal then return judged { literal } end
  local now = ngx.now()
  local entry = cache:get(host)
  if entry and entry.fresh > now then
    if #entry.list == 0 then return nil, entry.why or "dns_error", "no address" end
    return judged(entry.list)
  end
  if not address.name(host) then return nil, "dns_error", "not a name" end
  local list, ttl = ask(host, TYPE_A)
  if list then
    local six, ttl6 = ask(host, TYPE_AAAA)
    for _, b in ipairs(six or {}) do list[#list + 1] = b end
    if six and #six > 0 then ttl = math.min(ttl, ttl6) end
    if #list > 0 and ttl == NEGATIVE_SECONDS and six and #six > 0 then ttl = ttl6 end
    cache:set(host, { list = list, fresh = ngx.now() + ttl }, STALE_MAX_SECONDS)
    keep(host, list)
    return judged(list)
  end
  -- No resolver answered: what was known serves on, and only one request in a while waits for the next try.
  local why = ttl == "timeout" and "dns_timeout" or "dns_error"
  local known = recall(host)
  cache:set(host, { list = known, fresh = ngx.now() + AGAIN_SECONDS, why = why }, STALE_MAX_SECONDS)
  if #known > 0 then return judged(known) end
  return nil, why, ttl
end

return M
