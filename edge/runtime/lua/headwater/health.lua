-- Which of two origins a hostname uses now. Only hostnames with a backup have a state here, shared by the workers of the cell.
-- What must hold: failure_threshold failures in a row turn to the backup for hold_down_seconds at least; then one request a second
-- tries the primary, and recovery_threshold successes in a row over failback_delay_seconds turn back; a failure starts it again.
local cjson = require "cjson.safe"
local M = {}
local dict = ngx.shared.hw_health
local KEEP_SECONDS = 2 * 86400
local TRIAL_SECONDS = 1

local function load(key)
  return cjson.decode(dict:get(key) or "null")
end

--- "primary" or "backup", and whether this request is a trial.
function M.pick(key)
  local s = load(key)
  if type(s) ~= "table" or not s.down then return "primary" end
  if ngx.now() < s.down then return "backup" end
  if dict:add(key .. "#trial", 1, TRIAL_SECONDS) then return "primary", true end
  return "backup"
end

--- The primary failed.
function M.failed(key, b)
  local s = load(key)
  if type(s) ~= "table" then s = { fails = 0 } end
  s.fails = s.fails + 1
  if s.down or s.fails >= b.failure_threshold then
    s.down, s.good, s.since = ngx.now() + b.hold_down_seconds, 0, nil
  end
  dict:set(key, cjson.encode(s), KEEP_SECONDS)
end

--- The primary answered.
function M.answered(key, b)
  local s = load(key)
  if type(s) ~= "table" then return end
  if s.down then
    s.good, s.since = (s.good or 0) + 1, s.since or ngx.now()
    if s.good < b.recovery_threshold or ngx.now() - s.since < b.failback_delay_seconds then
      dict:set(key, cjson.encode(s), KEEP_SECONDS)
      return
    end
  end
  dict:delete(key)
end

return M
