-- The operator's values of this cell (etc/cell.json), read once at start.
-- What must hold: an unknown key, or one of the wrong type, keeps nginx from starting and is named.
local cjson = require "cjson.safe"

local KEYS = {
  resolvers = "table",                  -- ["127.0.0.1:53", …], asked in turn
  unsafe_loopback_origins = "boolean",  -- demo and tests only
  private_origins = "table",            -- private prefixes that origins may be in
  own_addresses = "table",              -- the platform's own addresses: never an origin
}

local path = ngx.config.prefix() .. "etc/cell.json"
local file = assert(io.open(path, "rb"), "cannot read " .. path)
local text = file:read("*a")
file:close()
local cell = cjson.decode(text)
assert(type(cell) == "table", path .. " is not a JSON object")
for key, value in pairs(cell) do
  assert(KEYS[key], path .. ": unknown key " .. tostring(key))
  assert(type(value) == KEYS[key], path .. ": " .. key .. " must be a " .. KEYS[key])
end
assert(type(cell.resolvers) == "table" and #cell.resolvers > 0, path .. ": resolvers is missing")
return cell
