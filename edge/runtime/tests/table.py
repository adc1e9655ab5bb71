"""Who is answered, with what, and what the origin is sent: hosts, TLS names, framing, forwarding headers, limits, failover."""
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from harness import changed, domain_of, get, origin_of

RAW = [  # what, bytes, statuses that are right (0 = connection closed without an answer)
    ("no Host", b"GET /t/ HTTP/1.1\r\n\r\n", {400}),
    ("no Host, HTTP/1.0", b"GET /t/ HTTP/1.0\r\n\r\n", {400}),
    ("empty Host", b"GET /t/ HTTP/1.1\r\nHost:\r\n\r\n", {400}),
    ("two Hosts", b"GET /t/ HTTP/1.1\r\nHost: a.example.com\r\nHost: a.example.com\r\n\r\n", {400}),
    ("two different Hosts", b"GET /t/ HTTP/1.1\r\nHost: a.example.com\r\nHost: b.example.net\r\n\r\n", {400}),
    ("Host with slash", b"GET /t/ HTTP/1.1\r\nHost: a.example.com/x\r\n\r\n", {400}),
    ("Host with blank", b"GET /t/ HTTP/1.1\r\nHost: a example.com\r\n\r\n", {400}),
    ("Host with quote", b"GET /t/ HTTP/1.1\r\nHost: a\"b.example.com\r\n\r\n", {400}),
    ("Host with NUL", b"GET /t/ HTTP/1.1\r\nHost: a\0.example.com\r\n\r\n", {400}),
    ("Host with at sign", b"GET /t/ HTTP/1.1\r\nHost: u@a.example.com\r\n\r\n", {400}),
    ("Host with a port beyond 65535", b"GET /t/ HTTP/1.1\r\nHost: a.example.com:99999\r\n\r\n", {400}),
    ("Host with a port of many digits", b"GET /t/ HTTP/1.1\r\nHost: a.example.com:4294967376\r\n\r\n", {400}),
    ("Host with a name as port", b"GET /t/ HTTP/1.1\r\nHost: a.example.com:http\r\n\r\n", {400}),
    ("Host with a negative port", b"GET /t/ HTTP/1.1\r\nHost: a.example.com:-1\r\n\r\n", {400}),
    ("Host with two ports", b"GET /t/ HTTP/1.1\r\nHost: a.example.com:80:80\r\n\r\n", {400}),
    ("unknown Host", b"GET /t/ HTTP/1.1\r\nHost: other.example.org\r\n\r\n", {421}),
    ("address as Host", b"GET /t/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", {421}),
    ("name of the server block", b"GET /t/ HTTP/1.1\r\nHost: _\r\n\r\n", {421}),
    ("parent of a hostname", b"GET /t/ HTTP/1.1\r\nHost: example.com\r\n\r\n", {421}),
    ("a wildcard's own text", b"GET /t/ HTTP/1.1\r\nHost: *.wild.example.com\r\n\r\n", {400}),
    ("CL and TE", b"POST /t/ HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
    ("two CLs", b"POST /t/ HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", {400}),
    ("two equal CLs", b"POST /t/ HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", {400}),
    ("CL with plus", b"POST /t/ HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: +5\r\n\r\nhello", {400}),
    ("CL list", b"POST /t/ HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 5, 5\r\n\r\nhello", {400}),
    ("TE of two codings", b"POST /t/ HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", {400, 501}),
    ("TE twice", b"POST /t/ HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", {400, 501}),
    ("TE in HTTP/1.0", b"POST /t/ HTTP/1.0\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
    ("TE with a control", b"POST /t/ HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", {400, 501}),
    ("blank before colon", b"POST /t/ HTTP/1.1\r\nHost: a.example.com\r\nContent-Length : 5\r\n\r\nhello", {400}),
    ("folded header", b"GET /t/ HTTP/1.1\r\nHost: a.example.com\r\nX-A: 1\r\n folded: 2\r\n\r\n", {400}),
    ("folded TE", b"POST /t/ HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", {400, 501}),
    ("first header folded", b"GET /t/ HTTP/1.1\r\n Host: a.example.com\r\n\r\n", {400}),
    ("NUL in a header", b"GET /t/ HTTP/1.1\r\nHost: a.example.com\r\nX-A: a\0b\r\n\r\n", {400}),
    ("CR alone in a header", b"GET /t/ HTTP/1.1\r\nHost: a.example.com\r\nX-A: a\rX-B: c\r\n\r\n", {400}),
    ("bad chunk size", b"POST /t/ HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", {400}),
    ("chunk size of 17 digits", b"POST /t/ HTTP/1.1\r\nHost: a.example.com\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n", {400, 413}),
    ("HTTP/0.9", b"GET /t/\r\n\r\n", {400, 0}),
    ("unknown version", b"GET /t/ HTTP/3.0\r\nHost: a.example.com\r\n\r\n", {400, 505}),
    ("TRACE", b"TRACE /t/ HTTP/1.1\r\nHost: a.example.com\r\n\r\n", {405}),
    ("CONNECT", b"CONNECT a.example.com:80 HTTP/1.1\r\nHost: a.example.com\r\n\r\n", {400, 405}),
    ("header of 9 KiB", b"GET /t/ HTTP/1.1\r\nHost: a.example.com\r\nX-A: " + b"a" * 9000 + b"\r\n\r\n", {400, 431}),
    ("headers of 40 KiB", b"GET /t/ HTTP/1.1\r\nHost: a.example.com\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"a" * 4000) for i in range(10)) + b"\r\n", {400, 431}),
    ("body of 17 MiB announced", b"POST /t/ HTTP/1.1\r\nHost: a.example.com\r\nContent-Length: 17825792\r\n\r\n", {413}),
    ("absolute URI of an unknown host", b"GET http://other.example.org/t/ HTTP/1.1\r\nHost: a.example.com\r\n\r\n", {421}),
]


def framing(w, cell, report):
    w.origin.tell("t", 200, {"Cache-Control": "no-store"}, "t")
    before = w.origin.count("t")
    for what, raw, right in RAW:
        status = cell.request("", raw=raw, source="127.0.2.1", timeout=1)[0] if what != "HTTP/0.9" else nine(cell, raw)
        report.check(f"{what}: {sorted(right)}", status in right, status)
    report.equal("none of them reached the origin", w.origin.count("t"), before)
    # What RFC 9112 3.2.2 wants: the host of an absolute URI counts, the Host field does not.
    status, _, _ = cell.request("", raw=b"GET http://a.example.com/t/abs HTTP/1.1\r\nHost: b.example.net\r\nConnection: close\r\n\r\n", source="127.0.2.1")
    report.equal("absolute URI wins over Host", (status, w.origin.last("t")["map"]["host"], w.origin.last("t")["path"]), (200, "origin.test", "/t/abs"))
    for text in ("A.Example.COM", "a.example.com:8080", "a.example.com:65535", "a.example.com:000080", "a.example.com:", "a.example.com."):
        report.equal(f"Host {text}", cell.request(text, "/t/h", source="127.0.2.2")[0], 200)
    report.equal("host under a wildcard", cell.request("x.y.wild.example.com", "/t/h", source="127.0.2.2")[0], 200)
    smuggled(w, cell, report)


def nine(cell, raw):
    s = socket.create_connection(("127.0.0.1", cell.http), 3)
    s.sendall(raw)
    s.shutdown(socket.SHUT_WR)
    data = s.recv(65536)
    s.close()
    return int(data.split()[1]) if data.startswith(b"HTTP/") else (0 if not data else -1 if b"400" not in data else 400)


def smuggled(w, cell, report):
    """One request in, one request out: what stands in a body is never a request to the origin."""
    before = w.origin.count("smuggled")
    inner = b"GET /smuggled/ HTTP/1.1\r\nHost: a.example.com\r\n\r\n"
    for head in (b"GET", b"POST", b"HEAD", b"DELETE"):
        cell.request("a.example.com", "/t/body", head.decode(), body=inner, source="127.0.2.3")
    cell.request("", raw=b"POST /t/c HTTP/1.1\r\nHost: a.example.com\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner), source="127.0.2.3")
    report.equal("no smuggled request", w.origin.count("smuggled"), before)


def tls(w, cell, report):
    w.origin.tell("s", 200, {"Cache-Control": "no-store"}, "s")
    ok = lambda host, sni: cell.request(host, "/s/", tls=True, sni=sni, source="127.0.2.4")[0]
    pairs = {("a.example.com", "a.example.com"): 200, ("b.example.com", "a.example.com"): 200, ("a.example.com", "A.EXAMPLE.com"): 200,
             ("b.example.net", "b.example.net"): 200, ("b.example.net", "a.example.com"): 421, ("a.example.com", "b.example.net"): 421,
             ("other.example.org", "a.example.com"): 421, ("a.example.com", "unused.example.com"): 200, ("b.example.net", "example.com"): 421,
             ("protected.test", "a.example.com"): 421}
    for (host, sni), want in pairs.items():
        report.equal(f"SNI {sni}, Host {host}", ok(host, sni), want)
    for sni in ("other.example.org", "default.invalid", "a.b.example.com", "protected.test", None):
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            refused = ""
            try:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                context.minimum_version = context.maximum_version = version
                with socket.create_connection(("127.0.0.1", cell.https), 5) as s, context.wrap_socket(s, server_hostname=sni) as t:
                    t.do_handshake()
            except ssl.SSLError as error:
                refused = error.reason
            report.check(f"SNI {sni}, {version.name}: no handshake, for what was asked for", "HANDSHAKE_FAILURE" in refused, refused)
    context = ssl.create_default_context(cafile=w.certs.ca)
    with socket.create_connection(("127.0.0.1", cell.https), 5) as s, context.wrap_socket(s, server_hostname="a.example.com") as t:
        report.check("the certificate verifies for its name", t.version() in ("TLSv1.2", "TLSv1.3"), t.version())
    out = subprocess.run(["curl", "-s", "--http2", "--cacert", w.certs.ca, "--resolve", f"a.example.com:{cell.https}:127.0.0.1", "-o", "/dev/null",
                          "-w", "%{http_version} %{http_code}", f"https://a.example.com:{cell.https}/s/h2"], capture_output=True, text=True).stdout
    report.equal("HTTP/2", out, "2 200")
    out = subprocess.run(["curl", "-s", "--http2", "--cacert", w.certs.ca, "--resolve", f"a.example.com:{cell.https}:127.0.0.1", "-o", "/dev/null", "-H",
                          "Host: b.example.net", "-w", "%{http_version} %{http_code}", f"https://a.example.com:{cell.https}/s/h2"], capture_output=True, text=True).stdout
    report.equal("HTTP/2, :authority of another domain", out, "2 421")
    report.equal("the origin saw https", w.origin.last("s")["map"]["x-forwarded-proto"], "https")
    # A resumed session does not carry a name over to another host.
    context = ssl.create_default_context(cafile=w.certs.ca)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("127.0.0.1", cell.https), 5) as s, context.wrap_socket(s, server_hostname="a.example.com") as t:
        session = t.session
    with socket.create_connection(("127.0.0.1", cell.https), 5) as s, context.wrap_socket(s, server_hostname="b.example.net", session=session) as t:
        t.sendall(b"GET /s/ HTTP/1.1\r\nHost: b.example.net\r\nConnection: close\r\n\r\n")
        report.check("a session of example.com resumed under another name gives nothing of that name", b" 421 " in t.recv(4096))


def renewal(w, cell, report):
    """A renewed certificate is shown as soon as its generation is served; the old one is never shown again."""
    def shown():
        context = ssl.create_default_context(cafile=w.certs.ca)
        with socket.create_connection(("127.0.0.1", cell.https), 5) as s, context.wrap_socket(s, server_hostname="www.renew.test") as t:
            return t.getpeercert()["serialNumber"]
    d = domain_of("renew.test", {"www.renew.test": w.plain_origin()})
    for version in (1, 2):
        crt, key = w.certs.leaf("www.renew.test")
        d = changed(d, certs=[cell.key("44444444-4444-4444-8444-444444444444", crt, key, ["www.renew.test"], version)])
        cell.wait(cell.put_delta([d]))
        serial = subprocess.run(["openssl", "x509", "-noout", "-serial", "-in", crt], capture_output=True, text=True).stdout.split("=")[1].strip()
        report.equal(f"certificate version {version}", {shown() for _ in range(6)}, {serial})


def forwarding(w, cell, report):
    w.origin.tell("f", 200, {"Cache-Control": "no-store"}, "f")
    hostile = {"X-Forwarded-For": "6.6.6.6", "X-Forwarded-Proto": "gopher", "X-Forwarded-Host": "evil.test", "Forwarded": "for=6.6.6.6",
               "X-Real-IP": "6.6.6.6", "X-Original-URL": "/admin", "X-Rewrite-URL": "/admin", "X-HTTP-Method-Override": "DELETE", "Proxy": "evil",
               "X-HW-O": "{}", "X-HW-S": "EXPIRED", "X-HW": "1", "Via": "1.0 before", "CDN-Loop": "other; a=1", "TE": "trailers", "Keep-Alive": "1"}
    cell.request("a.example.com", "/f/", headers=hostile, source="127.0.2.5")
    m = w.origin.last("f")["map"]
    want = {"x-forwarded-for": "127.0.2.5", "x-forwarded-proto": "http", "x-forwarded-host": None, "forwarded": None, "x-real-ip": None,
            "x-original-url": None, "x-rewrite-url": None, "x-http-method-override": None, "proxy": None, "x-hw-o": None, "x-hw-s": None,
            "via": "1.0 before, 1.1 headwater", "cdn-loop": "other; a=1, headwater", "te": None, "keep-alive": None, "connection": "close",
            "host": "origin.test"}
    for k, v in want.items():
        report.equal(f"origin sees {k}", m.get(k), v)
    # 127.0.9.0/24 are trusted proxies: right to left, the first that is not trusted is the client.
    for sent, seen in (("203.0.113.7", "203.0.113.7, 127.0.9.1"), ("6.6.6.6, 203.0.113.7", "203.0.113.7, 127.0.9.1"),
                       ("6.6.6.6, 203.0.113.7, 127.0.9.9", "203.0.113.7, 127.0.9.1"), ("garbage", "127.0.9.1"), ("203.0.113.7, garbage", "127.0.9.1")):
        cell.request("a.example.com", "/f/", headers={"X-Forwarded-For": sent}, source="127.0.9.1")
        report.equal(f"trusted proxy sends {sent}", w.origin.last("f")["map"]["x-forwarded-for"], seen)
    before = w.origin.count("f")
    report.equal("our own name in CDN-Loop", cell.request("a.example.com", "/f/", headers={"CDN-Loop": "x, headwater"}, source="127.0.2.5")[0], 508)
    report.equal("a loop does not reach the origin", w.origin.count("f"), before)
    # What an origin says in our own words is not believed.
    w.origin.tell("x", 200, {"X-Accel-Redirect": "/internal", "X-Accel-Expires": "3600", "X-HW": "1 9 9 n", "Cache-Control": "no-store"}, "x")
    _, headers, body = cell.request("a.example.com", "/x/", source="127.0.2.5")
    report.equal("X-Accel-Redirect and X-HW of an origin", (body, get(headers, "X-HW"), get(headers, "Cache-Control"), get(headers, "X-Accel-Expires")), (b"x", None, "no-store", None))
    before = w.origin.count("x")
    cell.request("a.example.com", "/x/", source="127.0.2.5")
    report.equal("X-Accel-Expires does not store", w.origin.count("x"), before + 1)


def websocket(w, cell, report):
    w.origin.tell("ws", "websocket")
    with socket.create_connection(("127.0.0.1", cell.http), 5) as s:
        s.sendall(b"GET /ws/ HTTP/1.1\r\nHost: a.example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        head = s.recv(4096)
        report.check("websocket: 101", head.startswith(b"HTTP/1.1 101"), head[:60])
        s.sendall(b"ping")
        report.equal("websocket: both ways", s.recv(100), b"echo:ping")
    w.origin.tell("ws", 200, {}, "plain")
    cell.request("b.example.net", "/ws/", headers={"Upgrade": "websocket", "Connection": "Upgrade"}, source="127.0.2.6", timeout=1)
    report.equal("no upgrade where the origin has none", w.origin.last("ws")["map"].get("upgrade"), None)


def cache_policy(w, cell, report):
    """Settings of a domain, beyond the rows of http_cache.tsv."""
    base = {n: domain_of(f"{n}.test", {f"{n}.test": w.plain_origin()}, cache=c) for n, c in {
        "off": {"enabled": False}, "override": {"respect_origin_headers": False, "edge_ttl_seconds": 100, "browser_ttl_seconds": 7},
        "short": {"edge_ttl_seconds": 2, "stale_while_revalidate_seconds": 0, "stale_if_error_seconds": 3}, "swr": {"edge_ttl_seconds": 1},
        "epoch": {"epoch": 1}, "small": {"maximum_object_bytes": 1048576}}.items()}
    cell.wait(cell.put_delta(list(base.values())))
    ask = lambda host, path, **k: cell.request(host, path, source="127.0.2.7", **k)

    def twice(key, host, headers, body="x", status=200):
        w.origin.tell(key, status, headers, body)
        ask(host, f"/{key}/")
        answer = ask(host, f"/{key}/")
        return w.origin.count(key), answer

    report.equal("cache off: every request to the origin", twice("c1", "off.test", {"Cache-Control": "max-age=60"})[0], 2)
    n, (_, h, _) = twice("c2", "override.test", {"Cache-Control": "no-cache, max-age=0", "Expires": "0"})
    report.equal("override: stored, browser lifetime replaced", (n, get(h, "Cache-Control"), get(h, "Expires")), (1, "max-age=7", None))
    for cc in ("private", "no-store"):
        report.equal(f"override never stores {cc}", twice("c3" + cc, "override.test", {"Cache-Control": cc})[0], 2)
    report.equal("override never stores Set-Cookie", twice("c4", "override.test", {"Set-Cookie": "a=1"})[0], 2)
    n, (_, h, _) = twice("c5", "a.example.com", {})
    report.equal("no word of the origin: stored, the browser is told", (n, get(h, "Cache-Control")), (1, "max-age=300"))
    report.equal("object above the bound is not stored", twice("c6", "small.test", {"Cache-Control": "max-age=60"}, "x" * 1100000)[0], 2)
    report.equal("object below the bound is", twice("c7", "small.test", {"Cache-Control": "max-age=60"}, "x" * 1000000)[0], 1)
    # 304s of an origin that says nothing of lifetimes: the domain's lifetime again, and Age begins again.
    w.origin.tell("c8", 200, {"ETag": '"e"'}, "x")
    ask("short.test", "/c8/")
    w.origin.tell("c8", 304, {"ETag": '"e"'})
    time.sleep(3.2)
    ask("short.test", "/c8/")
    status, h, body = ask("short.test", "/c8/")
    report.equal("304 renews under the domain's lifetime", (w.origin.count("c8"), status, body), (2, 200, b"x"))
    report.check("Age counts from the 304", int(get(h, "Age")) <= 1, get(h, "Age"))
    # stale_if_error_seconds is a bound.
    w.origin.tell("c9", 200, {}, "good")
    ask("short.test", "/c9/")
    w.origin.tell("c9", 503, {"X-Why": "really"}, "bad")
    time.sleep(3.2)
    report.equal("stale within stale_if_error_seconds", ask("short.test", "/c9/")[2], b"good")
    time.sleep(3)
    status, h, body = ask("short.test", "/c9/")
    report.equal("after it the error itself", (status, body, get(h, "X-Why")), (503, b"bad", "really"))
    # Purge by epoch.
    twice("c10", "epoch.test", {"Cache-Control": "max-age=600"})
    d = changed(base["epoch"], cache=dict(base["epoch"]["cache"], epoch=2))
    cell.wait(cell.put_delta([d]))
    w.origin.tell("c10", 200, {"Cache-Control": "max-age=600"}, "new")
    report.equal("a new epoch empties the domain's cache", ask("epoch.test", "/c10/")[2], b"new")
    # What was answered to a request with Authorization is nobody else's.
    w.origin.tell("c13", 200, {"Cache-Control": "max-age=60"}, "{echo user}")
    first = ask("a.example.com", "/c13/", headers={"Authorization": "Bearer me"})[2]
    report.equal("an answer to Authorization is not stored", (first, ask("a.example.com", "/c13/")[2]), (b"Bearer me", b""))
    # What others stored is not read with Authorization: the origin may have more to say to whoever is known.
    w.origin.tell("c15", 200, {"Cache-Control": "max-age=60"}, "{echo user}")
    stored = ask("a.example.com", "/c15/")[2]
    known = [ask("a.example.com", "/c15/", headers={"Authorization": f"Bearer {n}"})[2] for n in (1, 2)]
    report.equal("an answer to nobody is not read with Authorization", (stored, known, ask("a.example.com", "/c15/")[2]), (b"", [b"Bearer 1", b"Bearer 2"], b""))
    # An unsafe method empties its URI in every worker, also where a worker holds the file open.
    w.origin.tell("c14", 200, {"Cache-Control": "max-age=600"}, "old")
    for _ in range(12):
        ask("a.example.com", "/c14/")
    w.origin.tell("c14", 200, {}, "")
    ask("a.example.com", "/c14/", method="PUT", body=b"new")
    w.origin.tell("c14", 200, {"Cache-Control": "max-age=600"}, "new")
    report.equal("after a PUT no worker has the old one", {ask("a.example.com", "/c14/")[2] for _ in range(12)}, {b"new"})
    # Answers that may not be stored do not queue behind the lock.
    w.origin.tell("c11", 200, {"Cache-Control": "no-store"}, "x", delay=0.3)
    ask("a.example.com", "/c11/")
    for _ in range(3):      # each worker learns it once; the last round counts
        started = time.time()
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(lambda _: ask("a.example.com", "/c11/"), range(10)))
    report.check("ten requests for what is not storable run side by side", time.time() - started < 1.5, time.time() - started)
    w.origin.tell("c12", 200, {"Cache-Control": "max-age=60"}, "x", delay=0.5)
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda _: ask("a.example.com", "/c12/"), range(20)))
    report.equal("twenty requests for one cold object ask the origin once", w.origin.count("c12"), 1)


def limits(w, cell, report):
    w.origin.tell("l", 200, {"Cache-Control": "no-store"}, "l")
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: cell.request("quarantine.test", "/l/", source="127.0.3.1"), range(40)))
    got = [status for status, _, _ in answers]
    said = {status for status, headers, _ in answers if "cache-status" in {name.lower() for name, _ in headers}}
    report.equal("what the edge refuses says nothing of its cache", said, {200})
    report.check("quarantine: 10 a second and a burst of 10", got.count(429) >= 10 and got.count(200) >= 4, got)
    report.equal("another client is not touched", cell.request("quarantine.test", "/l/", source="127.0.3.2")[0], 200)
    report.equal("another domain is not touched", cell.request("a.example.com", "/l/", source="127.0.3.1")[0], 200)
    w.origin.tell("l2", 200, {"Cache-Control": "no-store"}, "l", delay=0.7)
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda _: cell.request("quarantine.test", "/l2/", source="127.0.3.3")[0], range(8)))
    report.equal("quarantine: 4 connections of a client", got.count(200), 4)
    time.sleep(1)
    body = b"x" * 1048577
    report.equal("quarantine: body above 1 MiB", cell.request("quarantine.test", "/l/", "POST", body=body, source="127.0.3.4")[0], 413)
    chunked = b"POST /l/ HTTP/1.1\r\nHost: quarantine.test\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + b"100001\r\n" + body + b"\r\n0\r\n\r\n"
    before = w.origin.count("l")
    report.equal("quarantine: chunked body above 1 MiB", cell.request("", raw=chunked, source="127.0.3.4")[0], 413)
    report.equal("it did not reach the origin", w.origin.count("l"), before)
    report.equal("standard: the same body", cell.request("a.example.com", "/l/", "POST", body=body, source="127.0.3.4")[0], 200)
    report.equal("quarantine: headers above 8 KiB", cell.request("quarantine.test", "/l/", headers={f"X-{i}": "a" * 3000 for i in range(3)}, source="127.0.3.4")[0], 431)
    w.origin.tell("l3", 200, {"Cache-Control": "max-age=60"}, "x")
    for _ in range(2):
        cell.request("quarantine.test", "/l3/?" + "q" * 1100, source="127.0.3.4")
    report.equal("quarantine: a key above 1 KiB is not cached", w.origin.count("l3"), 2)


def origins(w, cell, report):
    tls_ok = origin_of("secure.test", w.ports[2], scheme="https", sni="secure.test", host_header="secure.test")
    two = {"failure_threshold": 2, "recovery_threshold": 2, "hold_down_seconds": 5, "failback_delay_seconds": 5,
           "origin": origin_of("backup.test", w.ports[1], host_header="backup.host")}
    hosts = {"tls.o.test": tls_ok, "wrongname.o.test": dict(tls_ok, sni="other.test"),
             "unverified.o.test": dict(tls_ok, sni="other.test", verify_tls=False), "dead.o.test": origin_of("dead.test", w.dead),
             "nodns.o.test": origin_of("missing.test", 80), "two.o.test": {"origin": origin_of("dead.test", w.dead), "backup": two},
             "slow.o.test": w.plain_origin(response_timeout_ms=500, retries=0), "retry.o.test": w.plain_origin(retries=2),
             "tlsbackup.o.test": {"origin": origin_of("dead.test", w.dead), "backup": dict(two, origin=dict(tls_ok))},
             "nodnstwo.o.test": {"origin": origin_of("missing.test", 80), "backup": two}}
    cell.wait(cell.put_delta([domain_of("o.test", hosts, cache={"enabled": False})]))
    ask = lambda host, path="/o/", **k: cell.request(host, path, source="127.0.4.1", **k)
    w.secure.tell("o", 200, {}, "secure")
    report.equal("https origin", ask("tls.o.test")[2], b"secure")
    report.equal("SNI sent to it", w.secure.sni[-1], "secure.test")
    report.equal("wrong name in its certificate", ask("wrongname.o.test")[0], 502)
    report.equal("verification off", ask("unverified.o.test")[2], b"secure")
    report.equal("dead origin", ask("dead.o.test")[0], 502)
    status, headers, _ = ask("nodns.o.test")
    report.equal("unknown name", (status, get(headers, "Proxy-Status")), (502, "headwater; error=dns_error"))
    w.origin.tell("o", 200, {}, "x", delay=1)
    started = time.time()
    report.equal("response timeout", ask("slow.o.test")[0], 504)
    report.check("it is the domain's", 0.4 < time.time() - started < 1.5, time.time() - started)
    for method, want in (("GET", 3), ("PUT", 3), ("POST", 1), ("PATCH", 1)):
        w.origin.tell("r" + method, "down")
        ask("retry.o.test", "/r" + method + "/", method=method)
        report.equal(f"{method} is tried", w.origin.count("r" + method), want)
    w.backup.tell("o", 200, {}, "backup")
    report.equal("the backup answers a GET at once", ask("two.o.test")[2], b"backup")
    report.equal("with its own Host", w.backup.last("o")["map"]["host"], "backup.host")
    report.equal("the backup over TLS", ask("tlsbackup.o.test")[2], b"secure")
    report.equal("the backup where the primary has no address", ask("nodnstwo.o.test")[2], b"backup")
    ask("two.o.test")
    report.equal("after the threshold a POST goes to the backup", ask("two.o.test", method="POST", body=b"x")[2], b"backup")


def addresses(w, cell, report):
    """Several addresses, IPv6, and a resolver that falls silent."""
    from origin import Origin
    w.resolver.names.update({"second.test": ["127.0.0.77", "127.0.0.1"], "six.test": ["::1"], "silent.test": ["127.0.0.1"]})
    hosts = {"second.ad.test": origin_of("second.test", w.ports[0]), "silent.ad.test": origin_of("silent.test", w.ports[0]),
             "unheard.ad.test": origin_of("unheard.test", w.ports[0])}
    six = None
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        six = Origin(w.ports[3], name="six", host="::1")
        hosts["six.ad.test"] = origin_of("six.test", w.ports[3])
    except OSError:
        report.note("no IPv6 on loopback: not tried")
    cell.wait(cell.put_delta([domain_of("ad.test", hosts, cache={"enabled": False})]))
    ask = lambda host: cell.request(host, "/ad/", source="127.0.4.5")
    report.equal("the second address after a dead first", [ask("second.ad.test")[0] for _ in range(4)], [200] * 4)
    if six:
        report.equal("an IPv6 origin", ask("six.ad.test")[2], b"six")
    for _ in range(4):
        ask("silent.ad.test")                       # both workers know it
    time.sleep(1.2)
    w.resolver.silent = True
    slow = []
    for _ in range(12):
        at = time.time()
        report.equal("silent resolver: the known address", ask("silent.ad.test")[0], 200)
        slow.append(time.time() - at > 0.5)
    report.check("only the first request of a worker waits", slow.count(True) <= 2 + 1, slow)
    status, headers, _ = ask("unheard.ad.test")
    report.equal("silent resolver: a new name", (status, get(headers, "Proxy-Status")), (502, "headwater; error=dns_timeout; details=\"timeout\""))
    w.resolver.silent = False


def failback(w, cell, report):
    """The primary comes back: not before hold_down_seconds and failback_delay_seconds, and then it is used again."""
    from origin import Origin
    from harness import free_ports
    port = free_ports(1)[0]
    backup = {"failure_threshold": 1, "recovery_threshold": 2, "hold_down_seconds": 5, "failback_delay_seconds": 5, "origin": origin_of("backup.test", w.ports[1])}
    cell.wait(cell.put_delta([domain_of("fb.test", {"fb.test": {"origin": origin_of("dead.test", port), "backup": backup}}, cache={"enabled": False})]))
    ask = lambda: cell.request("fb.test", "/fb/", source="127.0.4.6")[2]
    report.equal("primary dead", ask(), b"backup")
    at = time.time()
    Origin(port, name="primary")
    seen = []
    while time.time() - at < 14:
        seen.append((time.time() - at, ask()))
        time.sleep(0.2)
    early = [t for t, b in seen if b == b"primary"]
    report.check("held down for 5 s", early and early[0] >= 4.5, early[:1])
    trials = [t for t in early if t < 9.5]
    report.check("then about one trial a second", 2 <= len(trials) <= 7, trials)
    report.check("after the delay all go to the primary", all(b == b"primary" for t, b in seen if t > 12.5), seen[-4:])


def log_lines(w, cell, report):
    cell.request("a.example.com", "/t/logged?secret=canary", headers={"User-Agent": 'q"uote', "Authorization": "canary", "Cookie": "canary"}, source="127.0.4.2")
    deadline = time.time() + 5
    path = f"{cell.folder}/log/access.json"
    while time.time() < deadline and "logged" not in open(path).read():
        time.sleep(0.1)
    text = open(path).read()
    rows = [json.loads(line) for line in text.splitlines()]
    row = [r for r in rows if r["path"] == "/t/logged"][-1]
    report.check("the access log is JSON lines with the client", row["client"] == "127.0.4.2" and row["agent"] == 'q"uote', row)
    report.check("nothing of query, authorization or cookies in it", "canary" not in text)


def hosts_file(w, cell, report):
    """The system's resolver is never asked: a name of the hosts file is unknown here."""
    d = domain_of("hostsfile.test", {"hostsfile.test": origin_of("localhost", w.ports[0])})
    cell.wait(cell.put_delta([d]))
    report.equal("localhost of the hosts file", cell.request("hostsfile.test", source="127.0.4.3")[0], 502)


def run(w, cell, report):
    for part in (framing, tls, renewal, forwarding, websocket, cache_policy, limits, origins, addresses, failback, log_lines, hosts_file):
        try:
            part(w, cell, report)
        except Exception as e:                       # a part that breaks is a failure, not the end
            import traceback
            report.check(part.__name__, False, traceback.format_exc())
