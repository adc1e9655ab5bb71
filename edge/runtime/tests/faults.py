#!/usr/bin/env python3
"""Planted faults: each must turn its group red. faults.py [NAME …]; a fault that nobody notices is a failure of the tests.

A fault is a text in a file of the runtime, replaced in a copy; the group runs against the copy.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
RUNTIME = os.path.dirname(HERE)
LUA = "lua/headwater/"
FAULTS = [
    # The faults of ssrf open loopback alone: a test makes no connection out of this machine.
    ("loopback forgotten", "ssrf", LUA + "address.lua", '{ "127.0.0.0/8", "loopback" },', ""),
    ("loopback needs no key", "ssrf", LUA + "address.lua", 'if class == "loopback" and loopback then', 'if class == "loopback" then'),
    ("refused too widely", "ssrf", LUA + "address.lua", '"172.16.0.0/12"', '"172.0.0.0/8"'),
    ("addresses are not judged after resolving", "ssrf", LUA + "resolve.lua", "local reason = M.judge(b)", "local reason = nil"),
    ("applying yields half way", "swap", LUA + "state.lua", "      if old then drop(id, old) end\n    end)", "      if old then drop(id, old) end\n    end)\n    if ngx.get_phase() == 'timer' then ngx.sleep(0.05) end"),
    ("decoded entries outlive their generation", "swap", LUA + "state.lua", "    M.entries:forget(name)\n", ""),
    ("a domain's hostnames share one origin", "table", LUA + "domains.lua", "if origins[i] == text then return i end", "do return i end"),
    ("generations are not checked", "swap", LUA + "state.lua", "local reason = check.check(d)", "local reason = nil"),
    ("conflicts are not looked for", "swap", LUA + "state.lua", "    if other then error", "    if false then error"),
    ("the base is read whatever a worker has", "swap", LUA + "state.lua", "if own > 0 and own == m.base then from = 0 end", ""),
    ("a respawned worker serves what the master read", "swap", LUA + "state.lua", "function M.follow()\n  M.step(false)", "function M.follow()\n  seen = current()"),
    ("the refusal is not told", "swap", LUA + "state.lua", "refused = { generation = n, reason = reason }", ""),
    ("Host of another domain than SNI", "table", LUA + "front.lua", 'if id ~= h.id then return refuse("421") end', ""),
    ("unknown SNI gets the default certificate", "table", LUA + "tls.lua", "if not c then return ssl.clear_certs() end", "if not c then return end"),
    ("unknown SNI ends as an error of the edge", "table", LUA + "tls.lua", "if not c then return ssl.clear_certs() end", "if not c then return ngx.exit(ngx.ERROR) end"),
    ("a port that cannot be is not looked at", "table", LUA + "front.lua", "if sent and sent ~= host and not has_port(sent) then", "if false then"),
    ("a refusal tells of the cache", "table", "nginx.conf", 'map $upstream_addr $hw_uncached { "" "";', 'map $upstream_addr $hw_uncached {'),
    ("parsed certificates are kept under the wrong name", "table", LUA + "tls.lua", "id = ngx.sha1_bin(c.chain) .. c.key_file", "id = c.key_file:sub(1, 41)"),
    ("X-Forwarded-For of the client passes", "table", "cached.conf", "X-Forwarded-For $hw_xff", "X-Forwarded-For $http_x_forwarded_for"),
    ("Forwarded passes", "table", "cached.conf", 'proxy_set_header Forwarded "";', ""),
    ("loops are not seen", "table", LUA + "origin.lua", "> 1 then return refuse(508", "> 9 then return refuse(508"),
    ("profiles share the standard's limits", "table", LUA + "front.lua", "  var.hw_no = s.location\n", ""),
    ("chunked bodies have no bound", "table", LUA + "origin.lua", "if (tonumber(var.content_length) or 0) > p.s.body then", "if false then"),
    ("verification of origins is off", "table", "origin.conf", "proxy_ssl_verify on;\n  proxy_pass $hw_scheme://hw_peer;\n  error_page", "proxy_ssl_verify off;\n  proxy_pass $hw_scheme://hw_peer;\n  error_page"),
    ("what is not storable queues behind the lock", "table", LUA + "front.lua", "if h and h.cached then pass(h) end", ""),
    ("the hosts file's answer is used", "table", LUA + "resolve.lua", 'if not address.name(host)', 'if host == "localhost" then return judged { "\\127\\0\\0\\1" } end\n  if not address.name(host)'),
    ("the origin's age is forgotten", "httpcache", LUA + "policy.lua", "return math.max(told, ", "return math.max(0, "),
    ("private is stored", "httpcache", LUA + "policy.lua", 'local hard = cc["private"] or', "local hard ="),
    ("unsafe methods do not invalidate", "httpcache", LUA + "front.lua", "    local file = io.open(path, \"r+b\")", "    local file"),
    ("a file that workers hold open stays good", "table", LUA + "front.lua", "      file:write(NO_VERSION)\n", ""),
    ("stale answers in spite of proxy-revalidate", "httpcache", LUA + "policy.lua", 'or cc["proxy-revalidate"] ', ""),
    ("Authorization shares the cache", "table", LUA + "policy.lua", "if a.authorized and not", "if false and not"),
    ("Authorization reads what others stored", "table", LUA + "front.lua", 'if var.http_authorization and not stored:get("p" .. key_of(h.prefix)) then', "if false then"),
    ("hosts share the cache", "httpcache", "cached.conf", '"$hw_d$scheme://$host$request_uri"', '"$hw_d$scheme://$request_uri"'),
    ("a refusal leaves the connection open", "strict", "front.conf", "keepalive_timeout 0; ", ""),
    ("a refusal says Connection over HTTP/2", "strict", LUA + "front.lua", "  ngx.say(status,", '  header["Connection"] = "close"\n  ngx.say(status,'),
    ("other words for forwarding pass", "strict", LUA + "request.lua", '"^x%-forwarded%-", ', ""),
    ("a hundred fields hide the next", "strict", LUA + "request.lua", "get_headers(0)", "get_headers()"),
    ("what Connection names passes", "strict", "cached.conf", "X-HW-C $http_connection", 'X-HW-C ""'),
    ("what it takes away shares the cache", "strict", LUA + "request.lua", "      taken = true\n", ""),
    ("an internal redirect forgets for whom it is", "strict", LUA + "origin.lua", 'if var.hw_one ~= "" then', "if ngx.ctx.one then"),
    ("an offer to upgrade passes", "strict", LUA + "request.lua", 'if not upgraded then header["Upgrade"] = nil end', ""),
    ("a 304 is stored", "strict", LUA + "policy.lua", "if renewed and not a.asked then return out end", ""),
    ("protocols change unasked", "strict", LUA + "origin.lua", "(status == 101 and ctx.websocket)", "(status == 101)"),
    ("lengths may contradict each other", "strict", LUA + "origin.lua", "tonumber(told) ~= tonumber(taken)", "false"),
    ("the bound of keys is the narrow profiles' alone", "strict", LUA + "origin.lua", "#var.request_uri > p.s.uri", "false"),
    ("line breaks in header values", "hostile", LUA + "check.lua", 'set_of("[!-~]")', 'set_of(".")'),
    ("key files anywhere", "hostile", LUA + "check.lua", '"^keys/[%w-]+%.pem$"', '"."'),
]


def run(fault):
    name, group, path, old, new = fault
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        os.chmod(folder, 0o755)
        copy = folder + "/runtime"
        shutil.copytree(RUNTIME, copy, ignore=shutil.ignore_patterns("tests"))
        text = open(f"{copy}/{path}").read()
        if text.count(old) < 1:
            return f"the text to change is gone: {old!r}"
        with open(f"{copy}/{path}", "w") as f:
            f.write(text.replace(old, new, 1))
        out = subprocess.run([sys.executable, HERE + "/run.py", group], capture_output=True, text=True, timeout=300,
                             env=dict(os.environ, HEADWATER_RUNTIME=copy, HOSTILE="5000", SWAPS="200"))
        first = re.search(r"^FAIL (.*)", out.stdout, re.M)
        if out.returncode == 0:
            return "NOT NOTICED"
        return "red: " + (first[1][:110] if first else (out.stdout + out.stderr).strip().splitlines()[-1][:110])


if __name__ == "__main__":
    chosen = [f for f in FAULTS if not sys.argv[1:] or any(a in f[0] or a == f[1] for a in sys.argv[1:])]
    missed = 0
    for f in chosen:
        result = run(f)
        missed += not result.startswith("red")
        print(f"{f[1]:9} {f[0]}: {result}", flush=True)
    print(f"{len(chosen)} faults, {missed} not noticed")
    sys.exit(1 if missed else 0)
