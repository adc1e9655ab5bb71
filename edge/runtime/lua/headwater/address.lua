-- Which addresses an origin may have.
-- What must hold: exactly the IANA special-purpose registries' ranges that are not globally reachable are refused (RFC 6890, 8190),
-- with every form that hides an IPv4 address judged by that address; private ranges only by the operator's list, loopback only under
-- the key that names itself unsafe. Whoever connects, connects to the text made here from the bytes that were judged.
local bit = require "bit"
local byte, char, format, concat = string.byte, string.char, string.format, table.concat
local M = {}

-- IPv4 in its one canonical spelling: no leading zeros, no octal, hexadecimal or short forms.
local function parse4(s)
  local a, b, c, d = s:match("^(%d%d?%d?)%.(%d%d?%d?)%.(%d%d?%d?)%.(%d%d?%d?)$")
  if not a then return nil end
  for _, x in ipairs { a, b, c, d } do
    if tonumber(x) > 255 or (#x > 1 and byte(x) == 48) then return nil end
  end
  return char(tonumber(a), tonumber(b), tonumber(c), tonumber(d))
end

local function groups(s, out)
  if s == "" then return true end
  local pos = 1
  while true do
    local colon = s:find(":", pos, true)
    local word = s:sub(pos, colon and colon - 1 or -1)
    if not colon and word:find(".", 1, true) then
      local v4 = parse4(word)
      if not v4 then return false end
      out[#out + 1] = v4
    else
      if not word:match("^%x%x?%x?%x?$") then return false end
      local n = tonumber(word, 16)
      out[#out + 1] = char(bit.rshift(n, 8), bit.band(n, 255))
    end
    if not colon then return true end
    pos = colon + 1
  end
end

-- IPv6 text (RFC 4291 2.2), without zone and without brackets.
local function parse6(s)
  if #s > 45 or not s:find(":", 1, true) then return nil end
  local at = s:find("::", 1, true)
  local head, tail = {}, {}
  if at then
    if s:find("::", at + 1, true) then return nil end
    local left = s:sub(1, at - 1)
    if left:find(".", 1, true) then return nil end
    if not groups(left, head) or not groups(s:sub(at + 2), tail) then return nil end
  elseif not groups(s, head) then
    return nil
  end
  local a, b = concat(head), concat(tail)
  if at then
    if #a + #b > 14 then return nil end
    return a .. ("\0"):rep(16 - #a - #b) .. b
  end
  return #a == 16 and a or nil
end

--- Bytes (4 or 16) of an address literal, or nil where the text is not one.
function M.parse(s)
  return parse4(s) or parse6(s)
end

--- The text under which an address is connected to.
function M.text(b)
  if #b == 4 then return format("%d.%d.%d.%d", byte(b, 1, 4)) end
  local t = {}
  for i = 1, 16, 2 do t[#t + 1] = format("%x", byte(b, i) * 256 + byte(b, i + 1)) end
  return concat(t, ":")
end

--- True where `b` lies in `prefix` {bytes, bits}.
local function within(b, prefix)
  local p, bits = prefix[1], prefix[2]
  if #b ~= #p then return false end
  local whole = math.floor(bits / 8)
  if b:sub(1, whole) ~= p:sub(1, whole) then return false end
  local rest = bits % 8
  if rest == 0 then return true end
  local mask = bit.band(bit.lshift(0xff, 8 - rest), 0xff)
  return bit.band(byte(b, whole + 1), mask) == bit.band(byte(p, whole + 1), mask)
end

--- A prefix from "address/bits".
function M.prefix(s)
  local a, n = s:match("^([^/]+)/(%d+)$")
  local b = M.parse(a or s)
  n = tonumber(n) or (b and #b * 8)
  if not b or n > #b * 8 then return nil end
  return { b, n }
end

local function list(rows)
  local out = {}
  for _, row in ipairs(rows) do
    local p = assert(M.prefix(row[1]), row[1])
    out[#out + 1] = { p[1], p[2], row[2] }
  end
  return out
end

-- First match decides. "ok" marks what the registries call globally reachable inside a range that is not.
local V4 = list {
  { "168.63.129.16/32", "metadata" }, { "0.0.0.0/8", "unspecified" }, { "10.0.0.0/8", "private" }, { "100.64.0.0/10", "cgnat" },
  { "127.0.0.0/8", "loopback" }, { "169.254.0.0/16", "link-local" }, { "172.16.0.0/12", "private" },
  { "192.0.0.9/32", "ok" }, { "192.0.0.10/32", "ok" }, { "192.0.0.0/24", "protocol" }, { "192.0.2.0/24", "documentation" },
  { "192.88.99.0/24", "protocol" }, { "192.168.0.0/16", "private" }, { "198.18.0.0/15", "benchmarking" },
  { "198.51.100.0/24", "documentation" }, { "203.0.113.0/24", "documentation" }, { "224.0.0.0/4", "multicast" },
  { "240.0.0.0/4", "reserved" },
}
local V6 = list {
  { "::1/128", "loopback" }, { "::/128", "unspecified" }, { "::ffff:0:0/96", "v4:12" }, { "::/96", "reserved" },
  { "64:ff9b::/96", "v4:12" }, { "64:ff9b:1::/48", "protocol" }, { "100::/64", "discard" }, { "100:0:0:1::/64", "discard" },
  { "2001:1::1/128", "ok" }, { "2001:1::2/128", "ok" }, { "2001:1::3/128", "ok" }, { "2001:3::/32", "ok" },
  { "2001:4:112::/48", "ok" }, { "2001:20::/28", "ok" }, { "2001:30::/28", "ok" }, { "2001::/23", "protocol" },
  { "2001:db8::/32", "documentation" }, { "2002::/16", "protocol" }, { "3fff::/20", "documentation" },
  { "fd00:ec2::254/128", "metadata" }, { "fc00::/7", "private" }, { "fe80::/10", "link-local" }, { "fec0::/10", "link-local" },
  { "ff00::/8", "multicast" }, { "2000::/3", "ok" }, { "::/0", "reserved" },
}

--- The class of an address: "ok", or why it is special. Second value: the IPv4 bytes that decide, where they are hidden in it.
function M.class(b)
  for _, row in ipairs(#b == 4 and V4 or V6) do
    if within(b, row) then
      if row[3] == "v4:12" then
        local inner = b:sub(13, 16)
        return M.class(inner), inner
      end
      return row[3], b
    end
  end
  return "ok", b
end

--- Makes the judge of a cell from its operator's values: returns nil, or the reason why an address is refused.
function M.judge(cell)
  local private, own = {}, {}
  for _, s in ipairs(cell.private_origins or {}) do private[#private + 1] = assert(M.prefix(s), "private_origins: " .. s) end
  for _, s in ipairs(cell.own_addresses or {}) do own[#own + 1] = assert(M.prefix(s), "own_addresses: " .. s) end
  local loopback = cell.unsafe_loopback_origins == true
  return function(b)
    local class, judged = M.class(b)
    for _, p in ipairs(own) do
      if within(b, p) or within(judged, p) then return "own" end
    end
    if class == "ok" then return nil end
    if class == "loopback" and loopback then return nil end
    if class == "private" then
      for _, p in ipairs(private) do
        if within(judged, p) then return nil end
      end
    end
    return class
  end
end

-- 1: a letter, 2: a digit, 3: hyphen and underscore.
local KIND = {}
for b = 0, 255 do
  local s = char(b)
  KIND[b] = s:match("%a") and 1 or s:match("%d") and 2 or s:match("[-_]") and 3 or 0
end

--- True for a name that may be asked of the DNS: letters, digits, hyphen and underscore, and a last label that no reader of
--- addresses takes for a number (0x7f000001, 017700000001, 127.1 are neither names nor addresses here).
function M.name(s)
  local n = #s
  if n > 253 or n == 0 then return false end
  local from, digits = 1, true
  for i = 1, n do
    local b = byte(s, i)
    if b == 46 then
      if i == from or i - from > 63 or i == n then return false end
      from, digits = i + 1, true
    else
      local kind = KIND[b]
      if kind == 0 then return false end
      if kind ~= 2 then digits = false end
    end
  end
  if n + 1 - from > 63 or digits then return false end
  return not (byte(s, from) == 48 and s:find("^0[xX]%x*$", from))
end

return M
