-- What the agent asks the runtime, over a socket that only the cell's user can reach.
-- What must hold: the answer of /generation is what each worker wrote of itself, never what it should have; /check changes nothing.
local cjson = require "cjson.safe"
local check = require "headwater.check"
local M = {}

--- GET /generation: this worker's own entry, and those of all under "all".
function M.generation()
  local dict = ngx.shared.hw_state
  local all = {}
  for id = 0, ngx.worker.count() - 1 do
    local entry = cjson.decode(dict:get("w" .. id) or "null")
    if type(entry) == "table" then all[#all + 1] = entry end
  end
  local own = cjson.decode(dict:get("w" .. ngx.worker.id()) or "null")
  if type(own) ~= "table" then return ngx.exit(503) end
  own.all = all
  ngx.header["Content-Type"] = "application/json"
  ngx.say(cjson.encode(own))
end

--- POST /check with compiled lines: which of them a generation would be refused for, by line number.
function M.check()
  ngx.req.read_body()
  local body = ngx.req.get_body_data()
  if not body and ngx.req.get_body_file() then
    local f = io.open(ngx.req.get_body_file(), "rb")
    body = f and f:read("*a")
    if f then f:close() end
  end
  local faults, lines = {}, 0
  for line in (body or ""):gmatch("[^\n]+") do
    lines = lines + 1
    local d, err = cjson.decode(line)
    local fault = d == nil and (err or "not JSON") or check.check(d)
    if fault then faults[#faults + 1] = { line = lines, reason = fault } end
    if lines % 200 == 0 then ngx.sleep(0.001) end
  end
  ngx.header["Content-Type"] = "application/json"
  ngx.say(cjson.encode { lines = lines, refused = #faults > 0 and faults or nil })
end

return M
