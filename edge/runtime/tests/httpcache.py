"""The rows of cases/http_cache.tsv. A row's verdict goes by what the origin was asked, not by what the edge says of itself.

Rows that need a purge of the API or a cache rule that this runtime does not have are named as skipped, with the reason.
"""
import json
import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from harness import get

SKIP_API = "needs the purge API"
SKIP_RULE = "needs a cache rule"


def rows():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases", "http_cache.tsv")
    for line in open(path):
        if line.startswith(("#", "id\t")) or not line.strip():
            continue
        id_, fault, level, basis, note, steps = line.rstrip("\n").split("\t")
        yield id_, fault, level, note, json.loads(steps)


def skip_reason(steps):
    for s in steps:
        if s["q"].startswith("API"):
            return SKIP_API
        c = s.get("c", {})
        if "then" in c:
            return SKIP_API
        if "rule" in c:
            return SKIP_RULE
    return None


class Case:
    def __init__(self, world, cell, id_, steps, source):
        self.w, self.cell, self.id, self.steps, self.source = world, cell, id_, steps, source
        self.old = None

    def parse(self, q):
        m = re.fullmatch(r"(\w+) (\S+)(?: \(with body (.*)\))?", q)
        method, target, body = m[1], m[2], m[3]
        host, tls = None, False
        if target.startswith("http"):
            tls = target.startswith("https:")
            host, target = re.fullmatch(r"https?://([^/]+)(/.*)", target).groups()
        return method, f"/{self.id}{target}", host, tls, body.encode() if body else None

    def send(self, step, n=0):
        method, path, host, tls, body = self.parse(step["q"])
        h = dict(step.get("h", {}))
        host = h.pop("Host", None) or host or "a.example.com"
        for k in h:
            if h[k] == "{each different}":
                h[k] = f"Bearer user-{n}"
            h[k] = re.sub(r"\{now([+-]\d+)?\}", lambda m: time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + int(m[1] or 0))), h[k])
        return self.cell.request(host, path, method, h, body, source=self.source, tls=tls)

    def run(self):
        for i, step in enumerate(self.steps):
            time.sleep(step.get("w", 0))
            if "r" in step:
                r = step["r"] + [{}, ""][len(step["r"]) - 1:]
                parallel = "parallel" in step.get("c", {})
                self.w.origin.tell(self.id, r[0], r[1], r[2], delay=0.3 if parallel else 0)
            before = self.w.origin.count(self.id)
            wrong = self.parallel(step, before) if "parallel" in step.get("c", {}) else self.single(step, before)
            if wrong:
                return f"step {i + 1}: {wrong}"
        return None

    def parallel(self, step, before):
        n = int(step["c"]["parallel"])
        with ThreadPoolExecutor(n) as pool:
            answers = list(pool.map(lambda i: (i, self.send(step, i)), range(n)))
        time.sleep(0.6)
        for i, (status, _, body) in answers:
            if step["c"].get("body") == "own user only" and body.decode() != f"Bearer user-{i}":
                return f"foreign body {body!r}"
            if step["x"] == "stale" and body.decode() != self.old:
                return f"not stale: {status} {body!r}"
        asked = self.w.origin.count(self.id) - before
        if "origin requests" in step["c"] and asked > 1:
            return f"{asked} requests at the origin"
        return None

    def single(self, step, before):
        status, headers, body = self.send(step)
        x = step["x"]
        asked = self.w.origin.count(self.id) - before
        text = body.decode("latin-1")
        shown = f"{status} {text[:40]!r} {get(headers, 'Cache-Status')}, origin asked {asked}"
        if x == "origin":
            if asked != 1:
                return "origin was not asked once: " + shown
            seen = self.w.origin.last(self.id)["map"]
            if "if-none-match" in seen or "if-modified-since" in seen:
                return "origin was asked conditionally"
        elif x == "cond":
            if asked != 1 or "if-none-match" not in self.w.origin.last(self.id)["map"]:
                return "origin was not asked conditionally: " + shown
        elif x == "cache" and asked:
            return "not from the cache: " + shown
        elif x == "stale" and text != self.old:
            return "not stale: " + shown
        elif x == "error" and status < 500:
            return "no error: " + shown
        elif x == "504" and status != 504:
            return "no 504: " + shown
        if x == "origin":
            self.old = text
        return self.checks(step, status, headers, text)

    def checks(self, step, status, headers, text):
        for k, v in step.get("c", {}).items():
            if k == "status":
                if str(status) not in v.split(" or "):
                    return f"status {status}, wants {v}"
            elif k == "body":
                if v == "empty" and text or v.startswith("not ") and v[4:] in text or not v.startswith(("not ", "empty")) and text != v:
                    return f"body {text!r}, wants {v}"
            elif k == "origin saw":
                wrong = self.saw()
                if wrong:
                    return wrong
            elif k == "Link of 103":
                if get(headers, "Link"):
                    return "Link of the 103 in the final answer"
            elif v.startswith("absent"):
                if get(headers, k) is not None:
                    return f"{k} is {get(headers, k)}"
            elif v.startswith(">="):
                if int(get(headers, k) or -1) < int(v[2:]):
                    return f"{k} is {get(headers, k)}, wants {v}"
            elif get(headers, k) != v:
                return f"{k} is {get(headers, k)}, wants {v}"
        return None

    def saw(self):
        r = self.w.origin.last(self.id)
        want = {"H031": ("x-forwarded-host", None), "H032": ("x-forwarded-proto", "http"), "H060": ("x-forwarded-for", self.source)}
        if self.id == "H033":
            return "a body reached the origin" if r["body"] else None
        name, value = want[self.id]
        return None if r["map"].get(name) == value else f"origin saw {name}: {r['map'].get(name)}"


def h052(world, cell, report):
    """H052 adapted: the rule "serve stale while updating" said by the origin's own stale-while-revalidate."""
    import signal
    kill = lambda: [os.kill(p, signal.SIGKILL) for p in cell.workers()]
    world.origin.tell("H052", 200, {"Cache-Control": "max-age=1, stale-while-revalidate=60"}, "a")
    ask = lambda: cell.request("a.example.com", "/H052/p", source="127.0.0.200")
    ask()
    time.sleep(2.5)
    world.origin.tell("H052", 200, {"Cache-Control": "max-age=3600"}, "b", delay=2)
    _, _, body = ask()
    stale = body == b"a"
    time.sleep(0.3)
    kill()
    world.origin.tell("H052", 200, {"Cache-Control": "max-age=3600"}, "b")
    deadline = time.time() + 90
    fresh = False
    while time.time() < deadline and not fresh:
        try:
            fresh = ask()[2] == b"b"
        except OSError:
            pass
        time.sleep(0.2)
    before = world.origin.count("H052")
    again = ask()[2] == b"b" and world.origin.count("H052") == before
    return None if stale and fresh and again else f"stale {stale}, refreshed {fresh}, cached {again}"


def run(world, cell, report, only=None):
    table, lock = {}, threading.Lock()

    def one(item):
        n, (id_, fault, level, note, steps) = item
        reason = skip_reason(steps)
        if reason:
            result = "skipped: " + reason
        else:
            try:
                wrong = Case(world, cell, id_, steps, f"127.0.1.{n + 1}").run()
            except Exception as e:
                wrong = repr(e)
            result = "pass" if wrong is None else "FAIL " + wrong
        with lock:
            table[id_] = (level, fault, result)

    items = [(n, r) for n, r in enumerate(rows()) if not only or r[0] in only]
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(one, items))
    if "H052" in table:
        wrong = h052(world, cell, report)
        table["H052"] = table["H052"][:2] + ("pass (adapted)" if wrong is None else "FAIL (adapted) " + wrong,)
    for id_, (level, fault, result) in sorted(table.items()):
        print(f"{id_} {level:6} {fault:22} {result}", flush=True)
        if level == "must" and not result.startswith("skipped"):
            report.check(f"{id_} {fault}", result.startswith("pass"), result)
    return table
