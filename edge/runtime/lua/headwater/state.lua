-- The generation that this worker serves.
-- What must hold: everything of a generation is read and checked before any of it is applied; applying does not yield, so a request
-- sees one generation; a generation that cannot be read changes nothing and its reason is told; objects that a request holds are
-- never changed, only replaced; what a change costs goes with the change. A base is named by the generation whose state it is.
local ffi = require "ffi"
local cjson = require "cjson.safe"
local check = require "headwater.check"
local domains = require "headwater.domains"
local Map, Recent = domains.Map, domains.Recent

ffi.cdef [[ ssize_t readlink(const char *path, char *buf, size_t bufsiz); int open(const char *path, int flags, ...); int close(int fd); ]]

local PREFIX = ngx.config.prefix()
local POLL_SECONDS, SLICE_LINES, DELTAS_MAX = 0.02, 100, 1000
local NUMBER_MAX = 2 ^ 53
local LINK_MAX_BYTES = 4096
local BLOCK_BYTES, LEFT_MAX_KIB = 65536, 65536
local READING_PAUSE_PERCENT = 150
local link = ffi.new("char[?]", LINK_MAX_BYTES)

local ENTRIES_MAX, CERTS_MAX = 6000, 1000       -- decoded ones that are kept, and as many again that were used before

local M = {
  entries = Recent.new(ENTRIES_MAX),      -- hostname as in the index -> entry
  generation = 0, count = 0,
}
local records = Map.new()     -- domain id -> record
local names = Map.new()       -- hostname -> domain id; *.example.com stands as /example.com, which nginx takes for no Host
local certs = Map.new()       -- name of a certificate -> domain id
local shown = Recent.new(CERTS_MAX)       -- domain id/name of a certificate -> {chain, key_file, domain}
local seen            -- the link that was last looked at, good or bad
local refused         -- {generation, reason} of the last refusal, until a later generation is served
local loaded_at = 0
local busy = false

local function current()
  local n = ffi.C.readlink(PREFIX .. "current", link, LINK_MAX_BYTES)
  if n < 0 then return nil end
  return ffi.string(link, n)
end

local function slurp(path)
  local f, err = io.open(PREFIX .. path, "rb")
  if not f then return nil, err end
  local s = f:read("*a")
  f:close()
  return s, path
end

local function number(v)
  return type(v) == "number" and v % 1 == 0 and v >= 0 and v <= NUMBER_MAX
end

local function manifest(dir)
  local n = tonumber(dir:match("^generations/(%d+)/?$"))
  if not n then error({ 0, "current points to no generation" }) end
  local s, err = slurp("generations/" .. n .. "/manifest.json")
  if not s then error({ n, err }) end
  local m = cjson.decode(s)
  if type(m) ~= "table" or m.generation ~= n or not number(m.base) or type(m.deltas) ~= "table" or #m.deltas > DELTAS_MAX then
    error({ n, "manifest.json is not a manifest of this generation" })
  end
  local last = 0
  for _, d in ipairs(m.deltas) do
    if not number(d) or d <= last or d > n then error({ n, "deltas are not ascending" }) end
    last = d
  end
  return m
end

-- Which files lead from what is served to the manifest's state: the deltas after our own generation, else the base and all deltas.
local function files(m)
  local own = M.generation
  local list, from = {}, nil
  if own > 0 and own == m.base then from = 0 end
  for i, d in ipairs(m.deltas) do
    if own > 0 and d == own then from = i end
  end
  if not from then list[1] = { "bases/" .. m.base .. "/domains.jsonl", true } end
  for i = (from or 0) + 1, #m.deltas do list[#list + 1] = { "generations/" .. m.deltas[i] .. "/delta.jsonl", false } end
  return list, from == nil
end

local FAULT = {}      -- key of why a line is no JSON: no JSON has it

-- The items of a block of lines. Decoded together: single lines would be long strings that are alike (domains.lua tells why that is dear).
local function decoded(block)
  local text, parted = block:gsub("\n", ",")
  local items = cjson.decode("[" .. text .. "]")
  if type(items) == "table" and #items == parted + 1 then return items end
  items = {}
  for line in block:gmatch("[^\n]+") do
    local item, why = cjson.decode(line)
    items[#items + 1] = item == nil and { [FAULT] = why } or item
  end
  return items
end

-- Reads one file into `changes`. Yields between blocks where the caller may.
local function read(n, path, is_base, changes, may_yield)
  local f, err = io.open(PREFIX .. path, "rb")
  if not f then error({ n, err }) end
  local count, full = 0, collectgarbage("count") + LEFT_MAX_KIB
  while true do
    local block, rest = f:read(BLOCK_BYTES, "*l")
    if not block then break end
    if rest then block = block .. rest end
    if block:byte(-1) == 10 then block = block:sub(1, -2) end
    for _, item in ipairs(block ~= "" and decoded(block) or {}) do
      count = count + 1
      local d = is_base and item or (type(item) == "table" and item.put)
      local reason = type(item) ~= "table" and "not an object" or item[FAULT] or d and check.check(d)
      if not reason and not d and type(item.remove) ~= "string" then reason = "neither put nor remove" end
      if reason then
        f:close()
        error({ n, path .. ":" .. count .. ": " .. (d and tostring(d.id) .. ": " or "") .. reason })
      end
      if d then changes:set(d.id, domains.record(d, n)) else changes:set(item.remove, false) end
    end
    if may_yield then
      ngx.sleep(0.001)
    elseif collectgarbage("count") > full then
      collectgarbage()
      full = collectgarbage("count") + LEFT_MAX_KIB
    end
  end
  f:close()
end

-- The index of `changes`. No two domains may own one hostname; judged on the end state: names of a domain that is replaced or removed are free.
local function index(n, changes, whole, may_yield)
  local new = { names = Map.new(), certs = Map.new(), count = 0 }
  local key_files = {}
  local function claim(id, name)
    local other = new.names:get(name)
    local live = not whole and names:get(name)
    if live and live ~= id and changes:get(live) == nil then other = live end
    if other then error({ n, name:gsub("^/", "*.") .. " belongs to two domains: " .. other .. " and " .. id }) end
    new.names:set(name, id)
  end
  changes:each(function(id, r)
    if not r then return end
    new.count = new.count + 1
    if may_yield and new.count % (SLICE_LINES * 5) == 0 then ngx.sleep(0.001) end
    for _, name in ipairs(domains.names(r)) do claim(id, name) end
    for _, c in ipairs(domains.certs(r)) do
      for _, name in ipairs(c.names) do new.certs:set(name, id) end
      if not key_files[c.key_file] then
        key_files[c.key_file] = true
        local fd = ffi.C.open(PREFIX .. c.key_file, 0)
        if fd < 0 then error({ n, id .. ": cannot read " .. c.key_file }) end
        ffi.C.close(fd)
      end
    end
  end)
  return new
end

local function drop(id, r)
  for _, name in ipairs(domains.names(r)) do
    if names:get(name) == id then names:set(name, nil) end
    M.entries:forget(name)
  end
  for _, c in ipairs(domains.certs(r)) do
    for _, name in ipairs(c.names) do
      if certs:get(name) == id then certs:set(name, nil) end
      shown:forget(id .. "/" .. name)
    end
  end
  records:set(id, nil)
  M.count = M.count - 1
end

-- Nothing here can fail or yield: from the first line to the last, no request runs.
local function apply(n, changes, new, whole)
  if whole then
    records, names, certs, M.count = changes, new.names, new.certs, new.count
    M.entries, shown = Recent.new(ENTRIES_MAX), Recent.new(CERTS_MAX)
  else
    changes:each(function(id)
      local old = records:get(id)
      if old then drop(id, old) end
    end)
    changes:each(function(id, r)
      if r then records:set(id, r) end
    end)
    new.names:each(function(name, id) names:set(name, id) end)
    new.certs:each(function(name, id)
      certs:set(name, id)
      shown:forget(id .. "/" .. name)
    end)
    M.count = M.count + new.count
  end
  M.generation = n
end

local function tell()
  local id = ngx.worker.id()
  if not id or ngx.worker.exiting() then return end
  ngx.shared.hw_state:set("w" .. id, cjson.encode {
    pid = ngx.worker.pid(), worker = id, workers = ngx.worker.count(), generation = M.generation, domains = M.count,
    loaded_at = loaded_at, refused = refused,
  })
end

local function load(dir, may_yield)
  local m = manifest(dir)
  local list, whole = files(m)
  local changes = Map.new()
  for _, file in ipairs(list) do read(m.generation, file[1], file[2], changes, may_yield) end
  local new = index(m.generation, changes, whole, may_yield)
  apply(m.generation, changes, new, whole)
  return whole
end

-- Reading leaves much behind. At a start it is collected in large pieces; later in small ones, and closer, for the old state is still there.
local function collected(dir, may_yield)
  local pause = may_yield and collectgarbage("setpause", READING_PAUSE_PERCENT)
  if not may_yield then collectgarbage("stop") end
  local ok, err = pcall(load, dir, may_yield)
  if pause then collectgarbage("setpause", pause) else collectgarbage("restart") end
  if ok and err and not may_yield then collectgarbage() end
  return ok, err
end

--- Looks at the link once and serves what it points to. True where something was tried.
function M.step(may_yield)
  local dir = current()
  if not dir or dir == seen then return false end
  ngx.update_time()
  local ok, err = collected(dir, may_yield)
  seen = dir
  if ok then
    loaded_at, refused = ngx.now(), nil
  else
    local n, reason = M.generation, tostring(err)
    if type(err) == "table" then n, reason = err[1], err[2] end
    refused = { generation = n, reason = reason }
    ngx.log(ngx.ERR, "generation ", n, " refused, keeping ", M.generation, ": ", reason)
  end
  tell()
  return true
end

--- In the master, before the workers: they share what is read here until they change it.
function M.start()
  M.step(false)
end

--- In each worker: first without waiting (a worker that was respawned must not serve what the master read), then every 20 ms: one readlink each.
function M.follow()
  M.step(false)
  tell()
  assert(ngx.timer.every(POLL_SECONDS, function(premature)
    if premature or busy then return end
    busy = true
    local ok, err = pcall(M.step, true)
    busy = false
    if not ok then ngx.log(ngx.ERR, "following the generation: ", err) end
  end))
end

local function entry(key)
  local all = M.entries
  local h = all.young[key] or all:again(key)
  if h then return h end
  local id = names:get(key)
  if not id then return nil end
  h = domains.entry(records:get(id), key)
  all:keep(key, h)
  return h
end

--- The entry of a hostname: its own, else that of the closest wildcard above it.
function M.find(host)
  local h = entry(host)
  if h then return h end
  if host:byte() == 42 then return nil end          -- an asterisk is how a wildcard is written, not a name below it
  local at = host:find(".", 1, true)
  while at do
    h = entry("/" .. host:sub(at + 1))
    if h then return h end
    at = host:find(".", at + 1, true)
  end
end

--- The id of the domain whose certificate covers a TLS name, and the name as the certificate has it.
function M.covering(name)
  local id = certs:get(name)
  if id then return id, name end
  local at = name:find(".", 1, true)
  name = at and "*" .. name:sub(at)
  id = name and certs:get(name)
  return id, name
end

--- The id of the domain that a TLS name belongs to: the one that serves it, else the one whose certificate covers it.
function M.owner(name)
  local h = M.find(name)
  if h then return h.id end
  return (M.covering(name))
end

--- The certificate for a TLS name: {chain, key_file, domain}. A name that a domain serves is proven by that domain's own
-- certificates alone: those of others may be for it too, but their keys are in other hands.
function M.certificate(name)
  local id = M.owner(name)
  local r = id and records:get(id)
  if not r then return nil end
  local at = name:find(".", 1, true)
  local wildcard = at and "*" .. name:sub(at)
  local key = id .. "/" .. (certs:get(name) and name or wildcard or name)
  local c = shown.young[key] or shown:again(key)
  if c then return c end
  local found
  for _, each in ipairs(domains.certs(r)) do
    for _, own in ipairs(each.names) do
      if own == name or own == wildcard and found ~= name then
        c, found = { chain = each.chain, key_file = each.key_file, domain = id }, own
      end
    end
  end
  if c then shown:keep(id .. "/" .. found, c) end
  return c
end

return M
