"""Generations: a thousand changes under load without a lost request, pinned slow requests, refused ones, killed workers."""
import json
import os
import signal
import socket
import threading
import time

from harness import STANDARD, changed, domain_of, origin_of, parse_answer

CHANGES = int(os.environ.get("SWAPS", "1000"))
DRY = "limit_req_dry_run on; limit_conn_dry_run on;\n"


class Load(threading.Thread):
    """A keep-alive client that counts its answers; an answer that is not 200, or a broken exchange, is a loss."""

    def __init__(self, cell, path, stop, host="swap.test"):
        super().__init__(daemon=True)
        self.cell, self.path, self.stop_, self.host, self.good, self.lost = cell, path, stop, host, 0, []

    def run(self):
        sock = None
        while not self.stop_.is_set():
            try:
                if sock is None:
                    sock = socket.create_connection(("127.0.0.1", self.cell.http), 10)
                    count = 0
                sock.sendall(f"GET {self.path} HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
                data = b""
                while b"\r\n\r\n" not in data or len(data.partition(b"\r\n\r\n")[2]) < int(data.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
                    part = sock.recv(65536)
                    if not part:
                        raise OSError("closed")
                    data += part
                status = parse_answer(data)[0]
                if status == 200:
                    self.good += 1
                else:
                    self.lost.append(status)
                count += 1
                if count == 900:            # before nginx ends it (keepalive_requests)
                    sock.close()
                    sock = None
            except (OSError, IndexError, ValueError) as e:
                self.lost.append(repr(e))
                sock = None


def cell_of(w, name, workers=2):
    cell = w.cell(name, workers=workers, http=DRY)
    swap = domain_of("swap.test", {"swap.test": w.plain_origin(host_header="rev-1.swap.test")}, cache={"enabled": True})
    others = [domain_of(f"n{i}.test", {f"www.n{i}.test": w.plain_origin()}) for i in range(1000)]
    cell.put_base([swap] + others)
    cell.start()
    return cell, swap, others


def revise(d, n, **more):
    hosts = {name: {"origin": dict(h["origin"], host_header=f"rev-{n}.swap.test")} for name, h in d["hosts"].items()}
    return dict(d, revision=n, hosts=hosts, **more)


def under_load(w, cell, d, others, report):
    w.origin.tell("hit", 200, {"Cache-Control": "max-age=3600"}, "h")
    w.origin.tell("miss", 200, {"Cache-Control": "no-store"}, "m")
    stop = threading.Event()
    load = [Load(cell, path, stop) for path in ("/hit/", "/hit/", "/miss/")]
    for t in load:
        t.start()
    log_before = cell.log().count("\n")
    longest, pids = 0, cell.workers()
    compacted = False
    for n in range(2, CHANGES + 2):
        previous, d = d, revise(d, n)
        changes = [d]
        if n % 10 == 0:
            changes.append(domain_of("n5.test", {"www.n5.test": w.plain_origin()}) if n % 20 else domain_of("n5.test", {})["id"])
        if len(cell.deltas) >= CHANGES * 2 // 5:                   # the agent's compaction: a base that is the state of the last generation
            base, real = cell.generation, not compacted
            compacted = True
            os.makedirs(f"{cell.folder}/bases/{base}")
            if real:                                  # some workers may be behind it and have to read it whole
                cell.write(f"bases/{base}/domains.jsonl", "".join(json.dumps(x) + "\n" for x in [previous, *others]))
            else:                                     # all are at it: nobody may read it
                cell.wait(base)
                cell.write(f"bases/{base}/domains.jsonl", "broken\n")
            cell.base, cell.deltas = base, []
        at = time.time()
        g = cell.put_delta(changes)
        if n % 25 == 0 or not cell.deltas[1:]:
            cell.wait(g)
            longest = max(longest, time.time() - at)
        else:
            time.sleep(0.01)
    p = cell.wait(cell.generation)
    stop.set()
    for t in load:
        t.join(15)
    report.equal("no request was lost in the changes", [x for t in load for x in t.lost], [])
    report.check("requests were answered meanwhile", sum(t.good for t in load) > CHANGES, [t.good for t in load])
    report.equal("all generations were taken", [x.get("refused") for x in p["all"]], [None] * len(p["all"]))
    report.equal("the workers are the same: no reload", sorted(cell.workers()), sorted(pids))
    logged = cell.log().splitlines()[log_before:]
    report.equal("nothing was logged", logged[:3], [])
    # A respawned worker reads the base that no living one needed.
    cell.write(f"bases/{cell.base}/domains.jsonl", "".join(json.dumps(x) + "\n" for x in [d, *others]))
    report.note(f"{CHANGES} generations, {sum(t.good for t in load)} requests answered, longest wait for all workers {longest * 1000:.0f} ms")
    return d


def pinned(w, cell, d, report):
    """A request that began before a change ends as it began; one that begins after it sees the change."""
    w.origin.tell("slow", 200, {"Cache-Control": "no-store"}, "{echo Host}", delay=1.5)
    got = {}
    t = threading.Thread(target=lambda: got.update(a=cell.request("swap.test", "/slow/", source="127.0.5.1")[2]))
    t.start()
    deadline = time.time() + 5
    while not w.origin.count("slow") and time.time() < deadline:
        time.sleep(0.01)
    n = d["revision"] + 1
    new = revise(d, n)
    cell.wait(cell.put_delta([new]))
    w.origin.tell("slow", 200, {"Cache-Control": "no-store"}, "{echo Host}")
    after = cell.request("swap.test", "/slow/", source="127.0.5.1")[2]
    t.join()
    report.equal("old and new request", (got["a"], after), (f"rev-{n - 1}.swap.test".encode(), f"rev-{n}.swap.test".encode()))
    path = f"{cell.folder}/log/access.json"
    deadline = time.time() + 5
    while open(path).read().count('"/slow/"') < 2 and time.time() < deadline:
        time.sleep(0.1)
    revs = [line.split('"rev":"')[1].split('"')[0].split(".")[1] for line in open(path) if '"/slow/"' in line]
    report.equal("the log tells the revision that each used", sorted(revs), sorted([str(n - 1), str(n)]))
    # A removed domain is served to the end to whoever began.
    w.origin.tell("slow", 200, {"Cache-Control": "no-store"}, "x" * 200000, delay=1)
    before = w.origin.count("slow")
    t = threading.Thread(target=lambda: got.update(b=cell.request("swap.test", "/slow/", source="127.0.5.1")[0]))
    t.start()
    while w.origin.count("slow") == before:
        time.sleep(0.01)
    cell.wait(cell.put_delta([d["id"]]))
    gone = cell.request("swap.test", "/slow/", source="127.0.5.1")[0]
    t.join()
    report.equal("removal: running request, next request", (got["b"], gone), (200, 421))
    cell.wait(cell.put_delta([new]))
    return new


def nearer(w, cell, report):
    """A hostname that comes below a wildcard takes its requests over, and gives them back."""
    w.origin.tell("near", 200, {"Cache-Control": "no-store"}, "{echo Host}")
    ask = lambda host="x.y.near.test": cell.request(host, "/near/", source="127.0.5.3")[2]
    wild = domain_of("near.test", {"*.near.test": w.plain_origin(host_header="far")})
    near = dict(wild, hosts=dict(wild["hosts"], **{"x.y.near.test": {"origin": w.plain_origin(host_header="near")}}))
    other = domain_of("z.test", {"*.y.near.test": w.plain_origin(host_header="other")})
    seen = []
    for change in (wild, near, wild, other, other["id"]):
        cell.wait(cell.put_delta([change]))
        seen.append(ask())
    report.equal("hostname, wildcard, nearer wildcard of another domain", seen, [b"far", b"near", b"far", b"other", b"far"])
    strange = [cell.request(h, "/near/", source="127.0.5.3")[0] for h in ("/near.test", "*.near.test", "/.near.test", ".near.test")]
    report.equal("how a wildcard is written is not a host", strange[:3], [400, 400, 400])
    report.check("an empty label below a wildcard is its matter", strange[3] in (200, 400, 421), strange)


def refused(w, cell, d, report):
    good = cell.generation
    net = domain_of("thief.test", {"swap.test": w.plain_origin()})
    bad_cert = dict(d, certs=[{"names": ["swap.test"], "chain": "-----BEGIN CERTIFICATE-----\nx", "key_file": "keys/none-1.pem"}])
    cases = [
        ("not JSON", dict(text="{"), "Expected"), ("not an object", dict(text="[1\n"), "Expected"),
        ("neither put nor remove", dict(text='{"x":1}\n'), "neither put nor remove"),
        ("unknown profile", dict(changes=[dict(d, security=dict(STANDARD, profile="manual"))]), "profile"),
        ("hostname of another domain", dict(changes=[net]), "belongs to two domains"),
        ("header with a line break", dict(changes=[revise(d, 1) | {"hosts": {"swap.test": {"origin": w.plain_origin(host_header="a\r\nX: y")}}}]), "host_header"),
        ("key file absent", dict(changes=[bad_cert]), "keys/none-1.pem"),
        ("key file outside", dict(changes=[dict(bad_cert, certs=[dict(bad_cert["certs"][0], key_file="keys/../etc/default.pem")])]), "key_file"),
        ("port out of range", dict(changes=[dict(d, hosts={"swap.test": {"origin": dict(w.plain_origin(), port=70000)}})]), "port"),
    ]
    for what, how, words in cases:
        n = cell.put_delta(how.get("changes", []), text=how.get("text"))
        p = cell.wait(n)
        reasons = [x.get("refused", {}).get("reason", "") for x in p["all"]]
        report.check(f"refused and told: {what}", all(words in r for r in reasons) and all(x["generation"] == good for x in p["all"]), reasons)
        report.equal(f"the old one serves: {what}", cell.request("swap.test", "/hit/", source="127.0.5.2")[0], 200)
        cell.deltas.pop()
    for what, write in (("manifest absent", None), ("manifest of another", '{"generation":1,"base":1,"deltas":[]}'), ("deltas not ascending", "x")):
        n = cell.generation + 1
        cell.generation = n
        os.makedirs(f"{cell.folder}/generations/{n}")
        if write == "x":
            write = f'{{"generation":{n},"base":{cell.base},"deltas":[5,4]}}'
        if write:
            cell.write(f"generations/{n}/manifest.json", write)
        cell.point(n)
        p = cell.wait(n)
        report.check(f"refused: {what}", all(x["generation"] == good and "refused" in x for x in p["all"]), p)
    n = cell.put_delta([revise(d, d["revision"] + 1)])
    p = cell.wait(n)
    report.check("the next good one is taken and the refusal is over", all(x["generation"] == n and "refused" not in x for x in p["all"]), p)
    # The same question beforehand, by the agent.
    lines = "\n".join(json.dumps(x) for x in (d, dict(d, id="x"), d)).encode()
    status, _, body = cell.control("POST", "/check", lines)
    report.equal("POST /check names the line", (status, json.loads(body)), (200, {"lines": 3, "refused": [{"line": 2, "reason": "id is not allowed"}]}))


def killed(w, cell, report):
    stop = threading.Event()
    load = [Load(cell, "/hit/", stop) for _ in range(4)]
    for t in load:
        t.start()
    time.sleep(0.3)
    pids = cell.workers()
    os.kill(pids[0], signal.SIGKILL)
    deadline = time.time() + 10
    while time.time() < deadline:
        try:
            now = cell.probe()
            if pids[0] not in [x["pid"] for x in now["all"]] and len(now["all"]) == 2:
                break
        except OSError:
            pass
        time.sleep(0.02)
    at = time.time()
    time.sleep(0.5)
    stop.set()
    for t in load:
        t.join(15)
    report.check("a respawned worker serves the newest generation at once", all(x["generation"] == cell.generation for x in now["all"]), now)
    report.check("only the killed worker's connections were lost", sum(len(t.lost) for t in load) <= 4 and sum(t.good for t in load) > 50, [t.lost for t in load])
    report.check("within seconds", at < deadline)


def run(w, report):
    cell, d, others = cell_of(w, "swap")
    d = under_load(w, cell, d, others, report)
    d = pinned(w, cell, d, report)
    nearer(w, cell, report)
    refused(w, cell, d, report)
    killed(w, cell, report)
