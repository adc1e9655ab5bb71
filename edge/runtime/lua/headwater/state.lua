-- The generation that this worker serves.
-- What must hold: everything of a generation is read and checked before any of it is applied; applying does not yield, so a request
-- sees one generation; a generation that cannot be read changes nothing and its reason is told; objects that a request holds are
-- never changed, only replaced. A base is named by the generation whose state it is.
local ffi = require "ffi"
local cjson = require "cjson.safe"
local check = require "headwater.check"

ffi.cdef [[ ssize_t readlink(const char *path, char *buf, size_t bufsiz); int open(const char *path, int flags, ...); int close(int fd); ]]

local PREFIX = ngx.config.prefix()
local POLL_SECONDS, SLICE_LINES, DELTAS_MAX = 0.1, 100, 1000
local NUMBER_MAX = 2 ^ 53
local LINK_MAX_BYTES = 4096
local link = ffi.new("char[?]", LINK_MAX_BYTES)

local M = {
  hosts = {},       -- hostname -> {d = domain, name, origin, backup, prefix, packed}
  wild = {},        -- ".example.com" -> the entry of *.example.com: never found by a Host that is spelled with an asterisk
  certs = {},       -- name of a certificate -> {d = domain, chain, key_file}
  domains = {},     -- domain id -> domain
  generation = 0, count = 0,
}
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

--- What a compiled domain looks like on the request path.
local function compile(d)
  d.prefix = d.id .. ":" .. d.cache.epoch .. ":"
  if d.security.profile ~= "standard" then
    d.narrow = d.security
    d.narrow.location = check.PROFILES[d.security.profile]
  end
  d.list = {}
  for name, h in pairs(d.hosts) do
    d.list[#d.list + 1] = { d = d, name = name, above = name:match("^%*(%..+)$"), prefix = d.prefix, origin = h.origin, backup = h.backup,
      narrow = d.narrow, cached = d.cache.enabled }
  end
  d.hosts = nil
  return d
end

-- Reads one file into `changes` (id -> domain or false). Yields between slices where the caller may.
local function read(n, path, is_base, changes, may_yield)
  local f, err = io.open(PREFIX .. path, "rb")
  if not f then error({ n, err }) end
  local count = 0
  for line in f:lines() do
    count = count + 1
    local item, why = cjson.decode(line)
    local d = is_base and item or (type(item) == "table" and item.put)
    if type(item) ~= "table" then
      f:close()
      error({ n, path .. ":" .. count .. ": " .. (why or "not an object") })
    elseif d then
      local reason = check.check(d)
      if reason then
        f:close()
        error({ n, path .. ":" .. count .. ": " .. tostring(d.id) .. ": " .. reason })
      end
      changes[d.id] = compile(d)
    elseif type(item.remove) == "string" then
      changes[item.remove] = false
    else
      f:close()
      error({ n, path .. ":" .. count .. ": neither put nor remove" })
    end
    if may_yield and count % SLICE_LINES == 0 then ngx.sleep(0.001) end
  end
  f:close()
end

-- No two domains may own one hostname. Judged on the end state: names of a domain that is replaced or removed are free.
local function conflicts(n, changes, whole, may_yield)
  local owner, key_files, count = {}, {}, 0
  for id, d in pairs(changes) do
    count = count + 1
    if may_yield and count % (SLICE_LINES * 5) == 0 then ngx.sleep(0.001) end
    for _, h in ipairs(d and d.list or {}) do
      local other = owner[h.name]
      local live = not whole and (M.hosts[h.name] or M.wild[h.above or ""])
      if live and live.d.id ~= id and changes[live.d.id] == nil then other = live.d.id end
      if other then error({ n, h.name .. " belongs to two domains: " .. other .. " and " .. id }) end
      owner[h.name] = id
    end
    for _, c in ipairs(d and d.certs or {}) do
      if not key_files[c.key_file] then
        key_files[c.key_file] = true
        local fd = ffi.C.open(PREFIX .. c.key_file, 0)
        if fd < 0 then error({ n, id .. ": cannot read " .. c.key_file }) end
        ffi.C.close(fd)
      end
    end
  end
end

local function drop(d)
  for _, h in ipairs(d.list) do
    local all, name = h.above and M.wild or M.hosts, h.above or h.name
    if all[name] == h then all[name] = nil end
  end
  for _, c in ipairs(d.certs or {}) do
    for _, name in ipairs(c.names) do
      if M.certs[name] and M.certs[name].d == d then M.certs[name] = nil end
    end
  end
  M.domains[d.id] = nil
  M.count = M.count - 1
end

local function add(d)
  for _, h in ipairs(d.list) do
    if h.above then M.wild[h.above] = h else M.hosts[h.name] = h end
  end
  for _, c in ipairs(d.certs or {}) do
    for _, name in ipairs(c.names) do M.certs[name] = { d = d, chain = c.chain, key_file = c.key_file } end
  end
  M.domains[d.id] = d
  M.count = M.count + 1
end

-- Nothing here can fail or yield: from the first line to the last, no request runs.
local function apply(n, changes, whole)
  if whole then M.hosts, M.wild, M.certs, M.domains, M.count = {}, {}, {}, {}, 0 end
  for id, _ in pairs(changes) do
    local old = M.domains[id]
    if old then drop(old) end
  end
  for _, d in pairs(changes) do
    if d then
      d.rev = n .. "." .. d.revision
      add(d)
    end
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
  local changes = {}
  for _, file in ipairs(list) do read(m.generation, file[1], file[2], changes, may_yield) end
  conflicts(m.generation, changes, whole, may_yield)
  apply(m.generation, changes, whole)
end

--- Looks at the link once and serves what it points to. True where something was tried.
function M.step(may_yield)
  local dir = current()
  if not dir or dir == seen then return false end
  ngx.update_time()
  local ok, err = pcall(load, dir, may_yield)
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

--- In each worker: first without waiting (a worker that was respawned must not serve what the master read), then every 100 ms.
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

--- The entry of a hostname: its own, else that of the closest wildcard above it.
function M.find(host)
  local h = M.hosts[host]
  if h then return h end
  if host:byte() == 42 then return nil end          -- an asterisk is how a wildcard is written, not a name below it
  local at = host:find(".", 1, true)
  while at do
    h = M.wild[host:sub(at)]
    if h then return h end
    at = host:find(".", at + 1, true)
  end
end

return M
