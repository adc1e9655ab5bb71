-- Certificates by name.
-- What must hold: a name that no certificate of the generation covers gets no handshake; a chain and its key are parsed on first use
-- and kept under a fingerprint of both, so that a generation change parses nothing and a changed certificate is never mixed up.
local ssl = require "ngx.ssl"
local state = require "headwater.state"
local lrucache = require "resty.lrucache"

local M = {}
local PARSED_MAX = 2000
local cache = assert(lrucache.new(PARSED_MAX))
local PREFIX = ngx.config.prefix()

local function key_text(path)
  local f, err = io.open(PREFIX .. path, "rb")
  if not f then return nil, err end
  local s = f:read("*a")
  f:close()
  return s
end

local function parsed(c)
  local id = c.print
  if not id then
    id = ngx.sha1_bin(c.chain) .. c.key_file
    c.print = id
  end
  local pair = cache:get(id)
  if pair then return pair end
  local pem, err = key_text(c.key_file)
  if not pem then return nil, err end
  local chain, key
  chain, err = ssl.parse_pem_cert(c.chain)
  if not chain then return nil, err end
  key, err = ssl.parse_pem_priv_key(pem)
  if not key then return nil, err end
  pair = { chain, key }
  cache:set(id, pair)
  return pair
end

--- The certificate for the name that the client asked for; without one the handshake ends. Nothing here can end it by the alert
-- unrecognized_name: only names in nginx's own configuration can. Without any certificate it ends by handshake_failure, which blames
-- what was asked for; an error would end it by internal_error, as if the edge were broken.
function M.certificate()
  local name = ssl.server_name()
  local c = name and state.certificate(name:lower())
  if not c then return ssl.clear_certs() end
  local pair, err = parsed(c)
  if not pair then
    ngx.log(ngx.ERR, "certificate of ", c.domain, ": ", err)
    return ngx.exit(ngx.ERROR)
  end
  ssl.clear_certs()
  local ok
  ok, err = ssl.set_cert(pair[1])
  if ok then ok, err = ssl.set_priv_key(pair[2]) end
  if not ok then
    ngx.log(ngx.ERR, "certificate of ", c.domain, ": ", err)
    return ngx.exit(ngx.ERROR)
  end
end

return M
