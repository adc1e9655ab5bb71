"""What a worker's memory and its start cost with many domains: two hostnames each, one origin, no certificate of their own.

MEMORY_DOMAINS="20000 100000" chooses the numbers. Judged: the goals at 100,000 domains (300 MiB a worker, an answer within 5 s of a
cold start), that a change costs by its size and not by the number of domains, and that the workers go on answering meanwhile.
"""
import os
import random
import socket
import threading
import time
import uuid

from harness import CACHE, STANDARD, origin_of
from swap import DRY, Load

NUMBERS = [int(n) for n in os.environ.get("MEMORY_DOMAINS", "20000 100000").split()]
WORKER_MAX_MIB, COLD_MAX_SECONDS, CHANGE_MAX_SECONDS = 300, 5, 1
ASKED = int(os.environ.get("MEMORY_ASKED", "20000"))


def mib(pid):
    """Resident and private memory of a process."""
    rows = dict(line.split(":") for line in open(f"/proc/{pid}/smaps_rollup") if ":" in line and "kB" in line)
    kib = {k: int(v.split()[0]) for k, v in rows.items()}
    return kib["Rss"] / 1024, (kib["Private_Clean"] + kib["Private_Dirty"]) / 1024


def domain(i, port):
    """Half of them alike but for a number in the middle: LuaJIT hashes long strings by a few of their bytes (domains.lua)."""
    name = f"customer-{i}.test"
    origin = origin_of(f"origin-{i % 5000}.test", port, host_header=f"www.{name}")
    if i % 2 == 0 and i > 7:
        return {"id": str(uuid.UUID(int=(0x01900000000070008 << 60) + i)), "domain": f"d{i}.example", "revision": 1,
                "hosts": {f"{n}1.{name}": {"origin": origin_of("127.0.0.1", port, host_header="origin.example")} for n in ("r", "sr")} | {name: {"origin": origin}},
                "cache": CACHE, "security": STANDARD}
    return {"id": str(uuid.UUID(int=(0x0195D2F0 << 96) + i)), "domain": name, "revision": i % 50 + 1,
            "hosts": {n: {"origin": dict(origin, host_header=n)} for n in (name, f"www.{name}")},
            "cache": dict(CACHE, epoch=i % 3), "security": STANDARD}


def ask_many(cell, count, number):
    """One keep-alive connection after the other asks for hosts at random; what is answered is not looked at beyond its status."""
    done, bad = 0, []
    while done < count:
        with socket.create_connection(("127.0.0.1", cell.http), 10) as s:
            f = s.makefile("rb")
            for _ in range(900):
                i = random.randrange(number)
                s.sendall(f"GET /m/ HTTP/1.1\r\nHost: customer-{i}.test\r\n\r\n".encode())
                status = int(f.readline().split()[1])
                length = 0
                while (line := f.readline()) != b"\r\n":
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                f.read(length)
                done += 1
                if status != 200:
                    bad.append(status)
                if done >= count:
                    break
    return bad


def measure(w, report, number):
    cell = w.cell(f"memory{number}", workers=2, http=DRY)
    port = w.ports[0]
    for i in range(5000):
        w.resolver.names[f"origin-{i}.test"] = ["127.0.0.1"]
    w.origin.tell("m", 200, {"Cache-Control": "max-age=3600"}, "m")
    cell.put_base([domain(i, port) for i in range(number)])
    started = time.time()
    cell.start()
    status = cell.request("customer-7.test", "/m/")[0]
    cold = time.time() - started
    report.equal(f"{number} domains: answers after a cold start", status, 200)
    boot = [mib(pid) for pid in cell.workers()]
    bad = ask_many(cell, ASKED, number)
    report.equal(f"{number} domains: all are answered", bad[:3], [])
    asked = [mib(pid) for pid in cell.workers()]
    # Changes under load: each is one domain and must cost as one domain.
    stop = threading.Event()
    load = [Load(cell, "/m/", stop, host="customer-1.test") for _ in range(2)]
    for t in load:
        t.start()
    longest = 0
    for n in range(100):
        at = time.time()
        cell.wait(cell.put_delta([dict(domain(n + 2, port), revision=1000 + n)]))
        longest = max(longest, time.time() - at)
    # The whole again, beside what is served: what an agent's compaction costs a worker that is behind.
    base = [domain(i, port) for i in range(number)]
    at = time.time()
    cell.wait(cell.put_base(base), 60)
    whole = time.time() - at
    stop.set()
    for t in load:
        t.join(15)
    after = [mib(pid) for pid in cell.workers()]
    report.equal(f"{number} domains: no request was lost", [x for t in load for x in t.lost], [])
    show = lambda all: " / ".join(f"{rss:.0f} ({private:.0f} private)" for rss, private in all)
    report.note(f"{number} domains: first answer {cold:.2f} s after the start; MiB of the workers: {show(boot)} at the start, {show(asked)} after "
                f"{ASKED} hosts, {show(after)} after everything again in {whole:.1f} s; longest change {longest * 1000:.0f} ms")
    if number >= 100000:
        report.check(f"a worker with {number} domains: {WORKER_MAX_MIB} MiB", max(r for r, _ in boot + asked + after) <= WORKER_MAX_MIB, (boot, asked, after))
        report.check(f"first answer within {COLD_MAX_SECONDS} s of a cold start", cold <= COLD_MAX_SECONDS, cold)
    report.check("a change of one domain costs as one domain", longest < CHANGE_MAX_SECONDS, longest)
    cell.stop()


def run(w, report):
    for number in NUMBERS:
        measure(w, report, number)
