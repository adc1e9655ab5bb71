"""What a hostile client or a faulty origin sends in well-framed messages: what has to end here does, and nothing of it is stored for others."""
import socket
import subprocess

from harness import domain_of, get, origin_of, parse_answer

FROM = "127.0.2.11"
# What origins and frameworks read, and the cache's key does not hold.
UNKEYED = ["X-Forwarded-Host", "X-Forwarded-Scheme", "X-Forwarded-Prefix", "X-Forwarded-Ssl", "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Path",
           "X-Forwarded-Uri", "X-Forwarded", "X-Forwarded-Anything", "Forwarded-For", "Forwarded", "X-Original-URL", "X-Original-Host", "X-Original-URI",
           "X-Rewrite-URL", "X-Host", "X-HTTP-Host-Override", "X-HTTP-Method", "X-HTTP-Method-Override", "X-Method-Override", "X-URL-Scheme",
           "Front-End-Https", "X-Real-IP", "Client-IP", "X-Client-IP", "True-Client-IP", "X-Cluster-Client-IP", "X-HW", "X-HW-C", "X-HW-Other",
           "X-Accel-Mapping", "X-Sendfile-Type", "Proxy-Authorization"]


def ended(port, raw, source=FROM, seconds=4):
    """What came, and whether the connection was ended by the other side."""
    with socket.create_connection(("127.0.0.1", port), seconds, (source, 0)) as s:
        s.sendall(raw)
        data = b""
        try:
            while part := s.recv(65536):
                data += part
            return data, True
        except ConnectionResetError:
            return data, True
        except TimeoutError:
            return data, False


def refusals(w, cell, report):
    """A refusal of a malformed request is the connection's last answer, over HTTP/1.1 and HTTP/2."""
    w.origin.tell("after", 200, {"Cache-Control": "no-store"}, "after")
    behind = b"GET /after/ HTTP/1.1\r\nHost: a.example.com\r\n\r\n"
    for what, first in (("a port that cannot be", b"GET / HTTP/1.1\r\nHost: a.example.com:99999\r\n\r\n"),
                        ("a user before the host", b"GET / HTTP/1.1\r\nHost: u@a.example.com\r\n\r\n"),
                        ("a header too long for the profile", b"GET / HTTP/1.1\r\nHost: quarantine.test\r\nX-A: " + b"a" * 5000 + b"\r\nX-B: " + b"b" * 5000 + b"\r\n\r\n")):
        data, over = ended(cell.http, first + behind)
        report.check(f"{what}: one answer", data.count(b"HTTP/1.1 ") == 1 and data.startswith(b"HTTP/1.1 4"), data[:300])
        report.check(f"{what}: the connection ends", over)
        report.equal(f"{what}: Connection", get(parse_answer(data)[1], "Connection"), "close")
    report.equal("what stands behind a refused request is not asked", w.origin.count("after"), 0)
    data, over = ended(cell.http, b"GET / HTTP/1.1\r\nHost: other.example.org\r\n\r\n" + behind, seconds=1)
    report.check("421 leaves the connection to others", data.count(b"HTTP/1.1 ") == 2 and not over, data[:300])
    out = h2(w, cell, "/", "-H", "Host: a.example.com:99999")
    report.equal("a refusal over HTTP/2 is an answer", out, "2 400")


def h2(w, cell, path, *more):
    return subprocess.run(["curl", "-s", "--http2", "--interface", FROM, "--cacert", w.certs.ca, "--resolve", f"a.example.com:{cell.https}:127.0.0.1", "-o",
                           "/dev/null", "-w", "%{http_version} %{http_code}", *more, f"https://a.example.com:{cell.https}{path}"], capture_output=True, text=True).stdout


def unkeyed(w, cell, report):
    w.origin.tell("u", 200, {"Cache-Control": "no-store"}, "u")
    for name in UNKEYED:
        cell.request("a.example.com", "/u/", headers={name: "evil"}, source="127.0.2.12")
        report.equal(f"origin sees {name}", w.origin.last("u")["map"].get(name.lower()), None)
    many = {f"X-{n}": "1" for n in range(300)}
    cell.request("a.example.com", "/u/", headers={**many, "X-Forwarded-Scheme": "evil"}, source="127.0.2.12")
    seen = w.origin.last("u")["map"]
    report.equal("nor behind three hundred others", (seen.get("x-forwarded-scheme"), seen.get("x-299")), (None, "1"))
    cell.request("a.example.com", "/u/", headers={"X-Mine": "1", "X-Requested-With": "x", "Origin": "https://a.example.com"}, source="127.0.2.12")
    seen = w.origin.last("u")["map"]
    report.equal("what is no such header passes", (seen.get("x-mine"), seen.get("x-requested-with"), seen.get("origin")), ("1", "x", "https://a.example.com"))


def hops(w, cell, report):
    """RFC 9110 7.6.1: what Connection names is for one hop, both ways."""
    ask = lambda path, **h: cell.request("a.example.com", path, headers={k.replace("_", "-"): v for k, v in h.items()}, source="127.0.2.13")
    w.origin.tell("hop", 200, {"Cache-Control": "max-age=60", "Vary": "X-Hop"}, "hop")
    ask("/hop/", Connection="close, X-Hop,\tX-Other", X_Hop="1", X_Other="2", X_Stays="3")
    seen = w.origin.last("hop")["map"]
    report.equal("the origin is not sent it", (seen.get("x-hop"), seen.get("x-other"), seen.get("x-stays")), (None, None, "3"))
    ask("/hop/", X_Hop="1")
    report.equal("the answer is not that of a request that had it", (w.origin.count("hop"), w.origin.last("hop")["map"].get("x-hop")), (2, "1"))
    ask("/hop/", X_Hop="1")
    ask("/hop/", X_Hop="1", Connection="close, X-Hop")
    ask("/hop/", X_Hop="1")
    report.equal("nor is anybody else's cache in its way", w.origin.count("hop"), 2)
    w.secure.tell("hop", 200, {"Cache-Control": "max-age=60"}, "hop")
    d = domain_of("loose.test", {"loose.test": origin_of("secure.test", w.ports[2], scheme="https", verify_tls=False)})
    cell.wait(cell.put_delta([d]))
    cell.request("loose.test", "/hop/", headers={"Connection": "close, X-Hop", "X-Hop": "1"}, source="127.0.2.13")
    cell.request("loose.test", "/hop/", source="127.0.2.13")
    report.equal("the same where the origin is not verified", (w.secure.count("hop"), w.secure.seen["hop"][0]["map"].get("x-hop")), (2, None))
    ask("/hop/two", Connection="close, Host, X-Forwarded-For, X-Forwarded-Proto, CDN-Loop, Via, Content-Length, Authorization", Authorization="Basic x")
    seen = w.origin.last("hop")["map"]
    report.equal("what is the edge's own stays", (seen.get("host"), seen.get("x-forwarded-for"), seen.get("x-forwarded-proto"), seen.get("cdn-loop"), seen.get("via"),
                                                   seen.get("authorization")), ("origin.test", "127.0.2.13", "http", "headwater", "1.1 headwater", "Basic x"))
    w.origin.tell("back", 200, {"Cache-Control": "max-age=60", "Connection": "Upgrade, X-Hop", "Upgrade": "h2,h2c", "X-Hop": "1", "X-Stays": "2"}, "back")
    for turn in ("first", "second"):
        _, h, _ = ask("/back/")
        report.equal(f"nor is the client, {turn}", (get(h, "X-Hop"), get(h, "Upgrade"), get(h, "X-Stays")), (None, None, "2"))
    w.origin.tell("apache", 200, {"Upgrade": "h2,h2c", "Cache-Control": "no-store"}, "apache")
    report.equal("an origin that offers h2 answers over HTTP/2", h2(w, cell, "/apache/"), "2 200")


def faulty(w, cell, report):
    """Answers that no origin should give."""
    ask = lambda host, path, **h: cell.request(host, path, headers={k.replace("_", "-"): v for k, v in h.items()}, source="127.0.2.14", timeout=3)
    w.origin.tell("f304", 304, {"Cache-Control": "max-age=60"})
    ask("a.example.com", "/f304/")
    w.origin.tell("f304", 200, {"Cache-Control": "max-age=60"}, "whole")
    status, _, body = ask("a.example.com", "/f304/")
    report.equal("a 304 that nobody asked for is not stored", (status, body), (200, b"whole"))
    w.origin.tell("f101", 101, {"Upgrade": "x", "Connection": "Upgrade"})
    report.equal("a 101 that nobody asked for", ask("a.example.com", "/f101/")[0], 502)
    w.origin.tell("fws", "websocket")
    report.equal("a 101 where the origin has no websocket", ask("b.example.net", "/fws/", Upgrade="websocket", Connection="Upgrade")[0], 502)
    w.origin.tell("ftwo", 200, {"Cache-Control": "max-age=60", "Content-Length": ["3", "5"]}, "12345")
    report.equal("two lengths", ask("a.example.com", "/ftwo/")[0], 502)
    w.origin.tell("ftwo", 200, {"Cache-Control": "max-age=60", "Content-Length": ["5", "5"]}, "12345")
    report.equal("one length told twice", ask("a.example.com", "/ftwo/same")[::2], (200, b"12345"))
    w.origin.tell("fage", 200, {"Cache-Control": "max-age=60", "Age": ["70", "3"]}, "old")
    ask("a.example.com", "/fage/")
    ask("a.example.com", "/fage/")
    report.equal("of two ages the first counts", w.origin.count("fage"), 2)


def bounds(w, cell, report):
    w.origin.tell("key", 200, {"Cache-Control": "max-age=60"}, "key")
    for host, long, short in (("a.example.com", 4200, 3900), ("quarantine.test", 1100, 900)):
        for size, times in ((long, 2), (short, 1)):
            before = w.origin.count("key")
            path = f"/key/{host}" + "k" * size
            for _ in range(2):
                cell.request(host, path, source=f"127.0.2.{15 + times}")
            report.equal(f"{host}: a path of {size} bytes is asked for", w.origin.count("key") - before, times)


def ages(w, cell, report):
    w.origin.tell("age", 200, {"Cache-Control": "max-age=60, public"}, "age")
    ask = lambda method, path, **h: get(cell.request("a.example.com", path, method, headers=h, source="127.0.2.18")[1], "Age")
    report.equal("no Age on what the origin answered now", (ask("POST", "/age/"), ask("GET", "/age/b", Authorization="Basic x"), ask("GET", "/age/m")), (None, None, None))
    report.check("one on what was stored", int(ask("GET", "/age/m")) <= 2)


def targeted(w, cell, report):
    w.origin.tell("cdn", 200, {"CDN-Cache-Control": "no-store"}, "cdn")
    d = domain_of("targeted.test", {"targeted.test": w.plain_origin()}, cache={"respect_origin_headers": False})
    cell.wait(cell.put_delta([d]))
    for _ in range(2):
        cell.request("targeted.test", "/cdn/", source="127.0.2.19")
    report.equal("override never stores what CDN-Cache-Control forbids", w.origin.count("cdn"), 2)


def run(w, cell, report):
    for part in (refusals, unkeyed, hops, faulty, bounds, ages, targeted):
        try:
            part(w, cell, report)
        except Exception:
            import traceback
            report.check(part.__name__, False, traceback.format_exc())
