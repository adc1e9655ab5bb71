"""A hundred thousand hostile strings as values of tenants: each is carried as data or refused as data, and the configuration that
nginx reads (nginx -T) stays the same to the byte. Seeded, so that a failure can be run again."""
import ipaddress
import json
import os
import random
import re
import subprocess

from harness import domain_of, get

COUNT = int(os.environ.get("HOSTILE", "100000"))
SEED = int(os.environ.get("SEED", "1"))
BATCH = 2000

PIECES = ["\r\n", "\n", "\r", "\0", ";", "}", "{", "$host", "$request_uri", "${hw_o}", "#", "\\", "\"", "'", "]]", "[[", "]=]", "--", "-- ", "`", "%s", "%00",
          "%0d%0aX-Evil:%201", "X-Evil: 1", "..", "../", "/etc/passwd", "a", "b.example", "example.com", "127.0.0.1", "localhost", " ", "\t", "\x7f", "\x80", "é",
          "\u202e", "\ud83d\ude00", "*", "*.", "@", ":", ":80", "include /etc/nginx/nginx.conf;", "proxy_pass http://x;", "}} server {", "os.execute('id')",
          "lua_need_request_body on;", "set $x 1;", "return 200;", "GET / HTTP/1.1", "HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "||", "&&", "<script>",
          "<!--#include", "\u0000", "0x7f.1", "xn--", "_", "-", ".", "", "A" * 300, "A" * 63, "x" * 254, "{{7*7}}", "\x1b[31m", "\v", "\f", "ngx.exit(200)"]
FIELDS = ["host_header", "host", "sni", "hostname", "domain", "id", "scheme", "profile", "chain", "key_file", "certificate name", "path"]


def strings(rng):
    for _ in range(COUNT):
        yield "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 5)))


def place(w, n, field, s):
    """A domain with the hostile string in one field."""
    name = f"h{n}.test"
    d = domain_of(name, {name: w.plain_origin()})
    o = d["hosts"][name]["origin"]
    if field in o or field == "sni":
        o[field] = s
    elif field == "hostname":
        d["hosts"] = {s: {"origin": o}}
    elif field in ("domain", "id"):
        d[field] = s
    elif field == "profile":
        d["security"]["profile"] = s
    elif field in ("chain", "key_file", "certificate name"):
        c = {"names": [name], "chain": "-----BEGIN CERTIFICATE-----\nx", "key_file": "keys/none-1.pem"}
        c.update({field: s} if field != "certificate name" else {"names": [s]})
        d["certs"] = [c]
    else:
        d["cache"]["epoch"] = s
    return d


NAME = re.compile(r"^[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*$")


def allowed(field, s):
    """What the runtime has to carry: written here a second time, from the field's grammar."""
    def name(t):
        last = t.rpartition(".")[2]
        return len(t) <= 253 and NAME.match(t) and "\n" not in t and not re.fullmatch(r"\d+|0[xX][0-9a-fA-F]*", last)
    v4 = re.fullmatch(r"(0|[1-9]\d?|1\d\d|2[0-4]\d|25[0-5])(\.(0|[1-9]\d?|1\d\d|2[0-4]\d|25[0-5])){3}", s)
    if field == "host_header":
        return 1 <= len(s) <= 253 and all("!" <= c <= "~" for c in s)
    if field == "sni":
        return 1 <= len(s) <= 253 and re.fullmatch(r"[A-Za-z0-9._-]+", s) is not None
    if field == "host":
        try:
            six = "%" not in s and ipaddress.IPv6Address(s)
        except ValueError:
            six = False
        return bool(v4 or six or name(s))
    if field in ("hostname", "domain", "certificate name"):
        t = s[2:] if s.startswith("*.") else s
        return bool(s == s.lower() and name(t))
    if field == "scheme":
        return s in ("http", "https")
    if field == "profile":
        return s in ("standard", "protected", "quarantine")
    return False


def config(cell):
    return subprocess.run(cell.command("-T"), cwd=cell.folder, capture_output=True).stdout


def run(w, report):
    cell = w.cell("hostile", workers=1, http="limit_req_dry_run on; limit_conn_dry_run on;\n")
    cell.put_base([domain_of("calm.test", {"calm.test": w.plain_origin()})])
    cell.start()
    before = config(cell)
    report.check("nginx -T prints the configuration", b"proxy_cache_key" in before, before[:200])
    rng = random.Random(SEED)
    wrong, carried, refused, batch, sent = [], 0, 0, [], []
    for n, s in enumerate(strings(rng)):
        field = rng.choice(FIELDS)
        batch.append((field, s, place(w, n, field, s)))
        if len(batch) == BATCH or n == COUNT - 1:
            c, r, good = judge(cell, batch, wrong)
            carried, refused = carried + c, refused + r
            sent += good
            batch = []
    report.equal("each string was carried or refused as its grammar says", wrong[:3], [])
    report.equal("all were judged", carried + refused, COUNT)
    serve(w, cell, report, sent)
    report.check("nginx -T is the same to the byte", config(cell) == before)
    report.equal("the calm domain serves", cell.request("calm.test", "/calm/")[0], 200)
    report.note(f"{COUNT} strings: {carried} carried, {refused} refused (seed {SEED})")


def judge(cell, batch, wrong):
    body = "\n".join(json.dumps(d) for _, _, d in batch).encode()
    answer = json.loads(cell.control("POST", "/check", body)[2])
    refused = {row["line"] for row in answer.get("refused") or []}
    good = []
    for line, (field, s, d) in enumerate(batch, 1):
        if (line not in refused) != bool(allowed(field, s)):
            wrong.append((field, s, line in refused))
        elif line not in refused:
            good.append((field, s, d))
    return len(batch) - len(refused), len(refused), good


def serve(w, cell, report, good):
    """What was carried is put into a generation; the header values are seen by the origin exactly as they are."""
    names, chosen = set(), []
    for field, s, d in good:
        if field in ("chain", "key_file", "certificate name"):
            continue
        if field == "hostname" and s in names:
            continue
        names.add(s if field == "hostname" else None)
        chosen.append((field, s, d))
    n = cell.put_delta([d for _, _, d in chosen])
    p = cell.wait(n, 60)
    report.check("a generation of all that was carried is served", p["all"][0]["generation"] == n, p)
    w.origin.tell("carried", 200, {"Cache-Control": "no-store"}, "c")
    lost = []
    headers = [(s, d) for field, s, d in chosen if field == "host_header"][:1500]
    for s, d in headers:
        status = cell.request(d["domain"], "/carried/")[0]
        if status != 200 or w.origin.last("carried")["map"]["host"] != s:
            lost.append((s, status))
    report.check("header values were seen by the origin as they are", not lost and headers, lost[:3])
    # A tenant's string in what visitors send: reflected nowhere.
    rng, bad = random.Random(SEED + 1), []
    for _ in range(500):
        s = "".join(rng.choice(PIECES) for _ in range(3)).encode("utf-8", "surrogatepass").replace(b"\r", b"").replace(b"\n", b"").replace(b"\0", b"")
        status, headers_, _ = cell.request("", raw=b"GET /carried/" + s.replace(b" ", b"%20").replace(b"\t", b"") + b" HTTP/1.1\r\nHost: calm.test\r\nX: " + s + b"\r\nConnection: close\r\n\r\n", timeout=2)
        if status not in (200, 400) or get(headers_, "X-Evil"):
            bad.append((s, status))
    report.equal("hostile paths and headers of visitors", bad[:3], [])
