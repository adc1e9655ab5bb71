"""Origins inside: every special-purpose prefix in every spelling leads to no connection. Judged by what nginx itself connects to
(strace of all workers), by listeners on the addresses that this machine can hold, and by the answer."""
import ipaddress
import itertools
import json
import os
import re
import shutil
import subprocess
import time

from harness import domain_of, get, origin_of

V4 = ["0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
      "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32", "169.254.169.254/32",
      "100.100.100.200/32", "255.255.255.255/32"]
V6 = ["::/128", "::1/128", "::/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001::/32", "2001:2::/48", "2001:10::/28", "2001:db8::/32", "2002::/16",
      "3fff::/20", "5f00::/16", "fc00::/7", "fd00:ec2::254/128", "fe80::/10", "fec0::/10", "ff00::/8", "4000::/3", "e000::/4"]
OPEN = ["1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "172.15.255.255",
        "172.32.0.0", "192.0.0.9", "192.0.0.10", "192.0.1.0", "192.31.196.1", "192.52.193.1", "192.175.48.1", "198.17.255.255", "198.20.0.0", "223.255.255.255",
        "2606:4700::1", "2001:4860::1", "2001:20::1", "2001:3::1", "2620:4f:8000::1", "2400::1", "64:ff9b::101:101", "::ffff:1.1.1.1"]


def spellings(a):
    """All ways to write an IPv4 address that some reader understands."""
    n, (b1, b2, b3, b4) = int(a), str(a).split(".")
    yield str(a)
    yield from (str(n), hex(n), "0" + oct(n)[2:], f"0x{int(b1):x}.0x{int(b2):x}.0x{int(b3):x}.0x{int(b4):x}", f"0{int(b1):o}.0{int(b2):o}.0{int(b3):o}.0{int(b4):o}",
                f"{b1}.{int(a) & 0xffffff}", f"{b1}.{b2}.{int(a) & 0xffff}", f"00{b1}.{b2}.{b3}.{b4}", str(a) + ".")
    yield f"::ffff:{a}"
    yield f"::ffff:{n >> 16:x}:{n & 0xffff:x}"
    yield f"0:0:0:0:0:ffff:{n >> 16:x}:{n & 0xffff:x}"
    yield f"::{a}"
    yield f"64:ff9b::{a}"
    yield f"64:ff9b::{n >> 16:x}:{n & 0xffff:x}"
    yield f"2002:{n >> 16:x}:{n & 0xffff:x}::1"
    yield f"[::ffff:{a}]"
    yield f"{str(a)}%eth0"


def table():
    for p in V4:
        net = ipaddress.ip_network(p)
        for a in {net[0] if p != "192.0.0.0/24" else net[1], net[-1], net[net.num_addresses // 2]}:
            for s in spellings(a):
                yield s
    for p in V6:
        net = ipaddress.ip_network(p)
        for a in {net[0], net[-1], net[net.num_addresses // 2]}:
            if p == "::/96" and (a.ipv4_mapped or int(a) == 1):
                continue
            yield from {str(a), a.exploded, str(a).upper(), f"[{a}]", f"{a}%1"}


def connects(trace):
    """Internet addresses that were connected to, but for the resolver's."""
    return re.findall(r"connect\(\d+, \{sa_family=AF_INET6?, .*?(?:inet_addr\(\"([^\"]+)\"\)|inet_pton\(AF_INET6, \"([^\"]+)\")", trace)


def run(w, report):
    cell = w.cell("ssrf", workers=1, http="limit_req_dry_run on; limit_conn_dry_run on;\n", cell={"resolvers": [f"127.0.0.1:{w.ports[4]}"], "own_addresses": ["1.2.3.0/24", "2606:4700:7::/48"]})
    cell.put_base([domain_of("calm.test", {"calm.test": w.plain_origin()})])
    literal = sorted(set(table()))
    own = ["1.2.3.4", "::ffff:1.2.3.4", "64:ff9b::1.2.3.4", "2606:4700:7::1"]
    cell.start()
    tracer, trace = None, f"{cell.folder}/log/strace"
    if shutil.which("strace"):
        tracer = subprocess.Popen(["strace", "-f", "-e", "trace=connect", "-o", trace, "-p", str(cell.workers()[0])], stderr=subprocess.DEVNULL)
        deadline = time.time() + 5
        while not os.path.exists(trace) and time.time() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
    domains = [domain_of(f"s{i}.test", {f"s{i}.test": origin_of(h, w.ports[0], host_header="x", retries=2)}, cache={"enabled": False}) for i, h in enumerate(literal + own)]
    answer = json.loads(cell.control("POST", "/check", "\n".join(json.dumps(d) for d in domains).encode())[2])
    refused = {row["line"] - 1 for row in answer.get("refused") or []}
    taken = [d for i, d in enumerate(domains) if i not in refused]
    cell.wait(cell.put_delta(taken), 30)
    before = w.origin.connections
    bad, reasons = [], {}
    for d in taken:
        status, headers, _ = cell.request(d["domain"], "/ssrf/")
        why = (get(headers, "Proxy-Status") or "").partition("error=")[2]
        reasons[why.split(";")[0]] = reasons.get(why.split(";")[0], 0) + 1
        if status != 502 or not why:
            bad.append((next(iter(d["hosts"].values()))["origin"]["host"], status, why))
    report.equal("every literal: no connection, and the answer says why", bad[:5], [])
    names(w, cell, report)
    rebinding(w, cell, report)
    report.equal("no connection reached the origin on loopback", w.origin.connections - before, 0)
    if tracer:
        time.sleep(0.3)
        tracer.terminate()
        tracer.wait()
        text = open(trace).read()
        seen = [a or b for a, b in connects(text)]
        report.check("strace saw the resolver asked", "127.0.0.1" in seen, seen[:5])
        inside = [a for a in seen if a != "127.0.0.1"]
        report.equal("strace: no connect() into a special range", inside[:5], [])
        loop = [line for line in text.splitlines() if "127.0.0.1" in line and f"htons({w.ports[4]})" not in line]
        report.equal("strace: loopback only for the resolver", loop[:3], [])
    else:
        report.note("strace is absent: judged by listeners alone")
    report.note(f"{len(literal) + len(own)} literals ({len(refused)} refused as text, {len(taken)} at connect time): {reasons}")
    classes(w, report)


def names(w, cell, report):
    """The same addresses out of the DNS, alone and beside an allowed one."""
    hosts = {}
    for i, a in enumerate(["127.0.0.1", "169.254.169.254", "10.0.0.1", "192.168.1.1", "100.64.0.1", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "fd00::1", "fe80::1", "0.0.0.0", "::", "1.2.3.9"]):
        w.resolver.names[f"in{i}.evil.test"] = [a]
        hosts[f"in{i}.e.test"] = origin_of(f"in{i}.evil.test", w.ports[0], retries=2)
    cell.wait(cell.put_delta([domain_of("e.test", hosts, cache={"enabled": False})]))
    bad = []
    for h in hosts:
        status, headers, _ = cell.request(h, "/ssrf/")
        if status != 502 or "destination_ip_prohibited" not in (get(headers, "Proxy-Status") or ""):
            bad.append((h, status, get(headers, "Proxy-Status")))
    report.equal("names that resolve inside", bad, [])


def rebinding(w, cell, report):
    """A name that answers a public address first and then loopback, TTL 0: never a connection inside."""
    flip = itertools.cycle([["198.51.100.7"], ["127.0.0.1"], ["10.0.0.1"], ["::1"]])
    w.resolver.names["rebind.evil.test"] = lambda: next(flip)
    cell.wait(cell.put_delta([domain_of("r.test", {"r.test": origin_of("rebind.evil.test", w.ports[0])}, cache={"enabled": False})]))
    deadline, n = time.time() + 4, 0
    while time.time() < deadline:
        if cell.request("r.test", "/ssrf/")[0] == 200:
            report.check("rebinding", False, "an answer came through")
            return
        n += 1
    report.check("rebinding: requests were refused", n > 50, n)


def classes(w, report):
    """The neighbours of the ranges are open, the lists of the operator open what they name and nothing else.

    Asked of the runtime's own module: an assert that fails keeps nginx from starting. (nginx -t would not run it.)
    """
    cell = w.cell("classes", workers=1)
    cell.put_base([domain_of("calm.test", {"calm.test": w.plain_origin()})])
    rows = ", ".join(f'"{a}"' for a in OPEN)
    special = ", ".join(f'"{s}"' for s in sorted(set(table())))
    private = '"10.0.0.1", "::ffff:10.1.2.3", "64:ff9b::a01:203"'
    cell.write("etc/probe.lua", f"""
local address = require "headwater.address"
local judge = address.judge {{ private_origins = {{ "10.0.0.0/8" }} }}
local strict = address.judge {{}}
for _, a in ipairs {{ {rows} }} do assert(strict(assert(address.parse(a), a)) == nil, a .. " is refused") end
for _, a in ipairs {{ {special} }} do local b = address.parse(a); assert(not b or strict(b), a .. " is open") end
for _, a in ipairs {{ {private} }} do assert(judge(address.parse(a)) == nil, a .. " is not allowed by the list"); assert(strict(address.parse(a)) == "private", a) end
assert(judge(address.parse("192.168.0.1")) == "private")
assert(judge(address.parse("127.0.0.1")) == "loopback" and address.judge {{ unsafe_loopback_origins = true }}(address.parse("127.0.0.1")) == nil)
assert(address.judge {{ unsafe_loopback_origins = true }}(address.parse("10.0.0.1")) == "private")
for _, a in ipairs {{ "0177.0.0.1", "127.1", "2130706433", "0x7f000001", "127.0.0.1.", "1.2.3.4.5", "256.1.1.1", "::1%lo", "[::1]", "1::2::3", ":::", "12345::", "::1.2.3", "" }} do
  assert(address.parse(a) == nil, a .. " was taken for an address")
end
assert(io.open(ngx.config.prefix() .. "log/probed", "w")):close()
""")
    cell.write("etc/probe.conf", open(f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}/nginx.conf").read().replace(
        'require("headwater.state").start()', 'dofile(ngx.config.prefix() .. "etc/probe.lua")'))
    cell.own()
    command = cell.command()
    command[command.index("-c") + 1] = "etc/probe.conf"
    out = open(f"{cell.folder}/log/probe.out", "w+")
    cell.process = subprocess.Popen(command, cwd=cell.folder, stdout=out, stderr=out)
    done, deadline = f"{cell.folder}/log/probed", time.time() + 20
    while not os.path.exists(done) and cell.process.poll() is None and time.time() < deadline:
        time.sleep(0.05)
    report.check(f"{len(OPEN)} neighbours of the ranges are open, {len(set(table()))} spellings are not", os.path.exists(done),
                 open(f"{cell.folder}/log/probe.out").read()[-600:] + cell.log()[-600:])
