"""The other side: an origin that answers as told and remembers what it was asked, and a resolver that answers as told."""
import gzip
import re
import socket
import socketserver
import ssl
import struct
import threading
import time
from email.utils import formatdate


class Origin:
    """Keyed by the first segment of the path: `answers[key]` = [status, headers, body, delay]; `seen[key]` = list of requests."""

    def __init__(self, port, tls=None, name="origin", host="127.0.0.1"):
        self.port, self.name, self.lock = port, name, threading.Lock()
        self.answers, self.seen, self.connections = {}, {}, 0
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self):
                outer.connections += 1
                while outer.one(self):
                    pass

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address, daemon_threads, request_queue_size = True, True, 1024

            def handle_error(self, *_):
                pass

        if ":" in host:
            Server.address_family = socket.AF_INET6
        self.server = Server((host, port), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.sni = []
            context.sni_callback = lambda _s, name, _c: self.sni.append(name)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def tell(self, key, status, headers=None, body="", delay=0):
        with self.lock:
            self.answers[key] = [status, headers or {}, body, delay]

    def count(self, key):
        with self.lock:
            return len(self.seen.get(key, []))

    def last(self, key):
        with self.lock:
            return self.seen[key][-1]

    def one(self, h):
        line = h.rfile.readline(65536)
        if not line.strip():
            return False
        method, path, _ = line.decode("latin-1").split(" ", 2)
        headers = []
        while True:
            row = h.rfile.readline(65536)
            if row in (b"\r\n", b"\n", b""):
                break
            k, _, v = row.decode("latin-1").partition(":")
            headers.append((k.strip().lower(), v.strip()))
        d = dict(headers)
        body = b""
        if d.get("transfer-encoding") == "chunked":
            while True:
                n = int(h.rfile.readline(), 16)
                body += h.rfile.read(n)
                h.rfile.readline()
                if n == 0:
                    break
        elif "content-length" in d:
            body = h.rfile.read(int(d["content-length"]))
        key = path.split("?")[0].strip("/").split("/")[0]
        with self.lock:
            self.seen.setdefault(key, []).append({"method": method, "path": path, "headers": headers, "map": d, "body": body})
            status, told, text, delay = self.answers.get(key) or [200, {"Cache-Control": "max-age=60"}, self.name, 0]
        if delay:
            time.sleep(delay)
        if status == "down":
            h.connection.close()
            return False
        if status == "websocket":
            return self.echo(h)
        return self.answer(h, method, d, body, status, told, text)

    def answer(self, h, method, d, body, status, told, text):
        now = time.time()
        raw = text if isinstance(text, bytes) else self.fill(text, d, body, now)
        if status == "103+200":
            h.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </s.css>; rel=preload\r\n\r\n")
            status = 200
        lines = [f"HTTP/1.1 {status} X"]
        names = {k.lower() for k in told}
        for k, v in told.items():
            for one in v if isinstance(v, list) else [v]:
                lines.append(f"{k}: " + re.sub(r"\{now([+-]\d+)?\}", lambda m: formatdate(now + int(m[1] or 0), usegmt=True), one))
        if "content-length" not in names and status not in (204, 304):
            lines.append(f"Content-Length: {len(raw)}")
        h.wfile.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
        if method != "HEAD" and status not in (204, 304):
            h.wfile.write(raw)
        return d.get("connection", "").lower() != "close"

    @staticmethod
    def fill(text, d, body, _now):
        m = re.fullmatch(r"\{gzip (.*)\}", text)
        if m:
            return gzip.compress(m[1].encode())
        m = re.fullmatch(r"\{echo (.*)\}", text)
        if m:
            what = {"body": body.decode("latin-1"), "user": d.get("authorization", "")}.get(m[1], d.get(m[1].lower(), ""))
            return what.encode("latin-1")
        return text.encode()

    @staticmethod
    def echo(h):
        h.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        while True:
            data = h.connection.recv(4096)
            if not data:
                return False
            h.connection.sendall(b"echo:" + data)


class Resolver:
    """`names[name]` = list of addresses, or a function that gives one. Everything else is NXDOMAIN."""

    def __init__(self, port):
        self.names, self.asked, self.silent = {}, [], False
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", port))
        threading.Thread(target=self.loop, daemon=True).start()

    def loop(self):
        while True:
            data, peer = self.sock.recvfrom(4096)
            pos, labels = 12, []
            while data[pos]:
                labels.append(data[pos + 1:pos + 1 + data[pos]].decode())
                pos += 1 + data[pos]
            name, qtype = ".".join(labels), struct.unpack("!H", data[pos + 1:pos + 3])[0]
            self.asked.append((name, qtype))
            if self.silent:
                continue
            found = self.names.get(name)
            found = found() if callable(found) else found
            family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(qtype)
            rows = [socket.inet_pton(family, a) for a in found or [] if (":" in a) == (qtype == 28)] if family else []
            head = data[:2] + struct.pack("!HHHHH", 0x8180 | (0 if found is not None else 3), 1, len(rows), 0, 0)
            body = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", qtype, 1, 0, len(r)) + r for r in rows)
            self.sock.sendto(head + data[12:pos + 5] + body, peer)
