"""A cell made by hand: what the agent would write, nginx started as an unprivileged user, and a client that sends exact bytes.

Everything lives in a directory of its own below /var/tmp; ports are taken below 32768 under a lock of the machine.
"""
import copy
import fcntl
import json
import os
import pwd
import random
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import uuid

RUNTIME = os.environ.get("HEADWATER_RUNTIME") or os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
USER = "nobody"
STANDARD = {"profile": "standard", "body_bytes": 16777216, "header_bytes": 32768, "cache_key_bytes": 4096,
            "origin_connect_ms": 3000, "origin_read_ms": 30000, "retries": 2}
PROTECTED = dict(STANDARD, profile="protected", body_bytes=8388608, header_bytes=16384, cache_key_bytes=2048,
                 origin_connect_ms=2000, origin_read_ms=15000, retries=1)
QUARANTINE = dict(STANDARD, profile="quarantine", body_bytes=1048576, header_bytes=8192, cache_key_bytes=1024,
                  origin_connect_ms=1000, origin_read_ms=10000, retries=0)
CACHE = {"enabled": True, "edge_ttl_seconds": 3600, "browser_ttl_seconds": 300, "respect_origin_headers": True,
         "maximum_object_bytes": 104857600, "stale_if_error_seconds": 60, "stale_while_revalidate_seconds": 30, "epoch": 0}


def free_ports(count):
    """Ports that nothing listens on; the lock is held for the life of this process, one file a port."""
    ports = []
    while len(ports) < count:
        port = random.randint(20000, 32000)
        lock = open(f"/tmp/headwater-port-{port}.lock", "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        free_ports.held.append(lock)
        ports.append(port)
    return ports


free_ports.held = []


def origin_of(host, port, **more):
    o = {"scheme": "http", "host": host, "port": port, "host_header": host, "verify_tls": True, "connect_timeout_ms": 1000,
         "response_timeout_ms": 5000, "retries": 1, "websocket": False}
    o.update(more)
    return o


def domain_of(name, hosts, **more):
    """A compiled line: `hosts` is hostname -> origin or {"origin", "backup"}."""
    d = {"id": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)), "domain": name, "revision": 1,
         "hosts": {n: (h if "origin" in h else {"origin": h}) for n, h in hosts.items()},
         "cache": dict(CACHE), "security": dict(STANDARD)}
    d["cache"].update(more.pop("cache", {}))
    d.update(more)
    return d


class Certificates:
    """A CA and leaves, by openssl."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self.ca, self.ca_key = f"{folder}/ca.crt", f"{folder}/ca.key"
        self._run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj",
                  "/CN=test", "-keyout", self.ca_key, "-out", self.ca)

    @staticmethod
    def _run(*args):
        subprocess.run(["openssl", *args], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def leaf(self, *names):
        base = f"{self.folder}/{names[0].replace('*', '_')}"
        with open(base + ".ext", "w") as f:
            f.write("subjectAltName=" + ",".join("DNS:" + n for n in names))
        self._run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=leaf", "-keyout",
                  base + ".key", "-out", base + ".csr")
        self._run("x509", "-req", "-in", base + ".csr", "-CA", self.ca, "-CAkey", self.ca_key, "-CAcreateserial", "-days", "30",
                  "-extfile", base + ".ext", "-out", base + ".crt")
        return base + ".crt", base + ".key"


class Cell:
    def __init__(self, folder, resolver, certificates, workers=2, http="", cell=None):
        self.folder, self.generation, self.base, self.deltas = folder, 0, None, []
        self.http, self.https = free_ports(2)
        self.process = None
        for d in ("etc", "run", "log", "cache", "keys", "bases", "generations"):
            os.makedirs(f"{folder}/{d}")
        self.write("etc/main.conf", f"worker_processes {workers};\nworker_rlimit_nofile 16384;\ndaemon off;\n")
        self.write("etc/http.conf", "proxy_cache_path cache levels=1:2 keys_zone=hw:32m max_size=1g inactive=1h use_temp_path=off;\n"
                   f"proxy_ssl_trusted_certificate {certificates.ca};\nset_real_ip_from 127.0.9.0/24;\n"
                   f"real_ip_header X-Forwarded-For;\nreal_ip_recursive on;\n{http}")
        self.write("etc/plain.conf", f"listen 127.0.0.1:{self.http} backlog=4096;\n")
        self.write("etc/tls.conf", f"listen 127.0.0.1:{self.https} ssl http2 backlog=4096;\n")
        self.write("etc/cell.json", json.dumps(cell or {"resolvers": [resolver], "unsafe_loopback_origins": True}))
        crt, key = certificates.leaf("default.invalid")
        self.write("etc/default.pem", open(crt).read() + open(key).read())
        os.symlink(f"{RUNTIME}/nginx.conf", f"{folder}/etc/nginx.conf")
        os.symlink(RUNTIME, f"{folder}/etc/runtime")

    def write(self, path, text):
        with open(f"{self.folder}/{path}", "w") as f:
            f.write(text)

    def key(self, cert_id, crt, key, names, version=1):
        path = f"keys/{cert_id}-{version}.pem"
        shutil.copy(key, f"{self.folder}/{path}")
        self.own(path)
        return {"names": list(names), "chain": open(crt).read(), "key_file": path}

    def own(self, path=""):
        if os.getuid() == 0:
            subprocess.run(["chown", "-R", f"{USER}:", f"{self.folder}/{path}"], check=True)

    # What the agent does with a generation.
    def point(self, n):
        tmp = f"{self.folder}/.current.{n}"
        os.symlink(f"generations/{n}", tmp)
        os.rename(tmp, f"{self.folder}/current")

    def put_base(self, domains, n=None, point=True):
        n = n or self.generation + 1
        os.makedirs(f"{self.folder}/bases/{n}")
        self.write(f"bases/{n}/domains.jsonl", "".join(json.dumps(d) + "\n" for d in domains))
        self.generation, self.base, self.deltas = n, n, []
        return self._manifest(n, point)

    def put_delta(self, changes, point=True, text=None):
        n = self.generation + 1
        os.makedirs(f"{self.folder}/generations/{n}")
        lines = "".join(json.dumps({"put": c} if isinstance(c, dict) else {"remove": c}) + "\n" for c in changes)
        self.write(f"generations/{n}/delta.jsonl", lines if text is None else text)
        self.generation = n
        self.deltas.append(n)
        return self._manifest(n, point)

    def _manifest(self, n, point):
        os.makedirs(f"{self.folder}/generations/{n}", exist_ok=True)
        self.write(f"generations/{n}/manifest.json", json.dumps(
            {"generation": n, "epoch": 1, "sequence": n, "base": self.base, "deltas": self.deltas}))
        if point:
            self.point(n)
        return n

    def command(self, *more):
        base = ["/usr/sbin/nginx", "-p", self.folder + "/", "-c", "etc/nginx.conf", "-e", self.folder + "/log/error.log", *more]
        if os.getuid() == 0:
            user = pwd.getpwnam(USER)
            base = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--", *base]
        return base

    def start(self, wrapper=()):
        self.own()
        os.chmod(f"{self.folder}/run", 0o700)
        for name in ("origin", "control"):
            if os.path.exists(f"{self.folder}/run/{name}.sock"):
                os.unlink(f"{self.folder}/run/{name}.sock")
        self.process = subprocess.Popen([*wrapper, *self.command()], cwd=self.folder, stdin=subprocess.DEVNULL,
                                        stdout=open(f"{self.folder}/log/out", "ab"), stderr=subprocess.STDOUT)
        deadline = time.time() + 20
        while time.time() < deadline:
            if self.process.poll() is not None:
                raise SystemExit("nginx did not start:\n" + self.log() + open(f"{self.folder}/log/out").read())
            try:
                if len(self.probe()["all"]) == self.probe()["workers"]:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise SystemExit("nginx does not answer:\n" + self.log())

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()

    def log(self):
        path = f"{self.folder}/log/error.log"
        return open(path, errors="replace").read() if os.path.exists(path) else ""

    def control(self, method, path, body=b""):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(30)
            s.connect(f"{self.folder}/run/control.sock")
            s.sendall(f"{method} {path} HTTP/1.1\r\nHost: control\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            return read_answer(s)

    def probe(self):
        return json.loads(self.control("GET", "/generation")[2])

    def wait(self, n, seconds=10):
        """Until every worker serves (or refused) generation n."""
        deadline = time.time() + seconds
        while time.time() < deadline:
            p = self.probe()
            if len(p["all"]) == p["workers"] and all(w["generation"] == n or w.get("refused", {}).get("generation") == n for w in p["all"]):
                return p
            time.sleep(0.01)
        raise AssertionError(f"generation {n} not reached: {p}")

    def workers(self):
        return [w["pid"] for w in self.probe()["all"]]

    def request(self, host, path="/", method="GET", headers=None, body=None, source="127.0.0.1", tls=False, sni=None, raw=None, timeout=15):
        """(status, headers as list of pairs, body). `raw` replaces the whole request."""
        s = socket.create_connection(("127.0.0.1", self.https if tls else self.http), timeout, (source, 0))
        try:
            if tls:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                s = context.wrap_socket(s, server_hostname=sni or host)
            if raw is None:
                lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"]
                lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
                if "connection" not in {k.lower() for k in headers or {}}:
                    lines.append("Connection: close")
                if body is not None:
                    lines.append(f"Content-Length: {len(body)}")
                raw = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")
            s.sendall(raw)
            return read_answer(s, method == "HEAD")
        finally:
            s.close()


def read_answer(s, head=False):
    data = b""
    while True:
        try:
            part = s.recv(65536)
        except ConnectionResetError:
            part = b""
        except TimeoutError:
            if not data:
                raise
            part = b""                        # an answer on a connection that stays open
        if not part:
            break
        data += part
    return parse_answer(data, head)


def parse_answer(data, head=False):
    top, _, body = data.partition(b"\r\n\r\n")
    lines = top.decode("latin-1").split("\r\n")
    if not lines[0].startswith("HTTP/"):
        return 0, [], data
    status = int(lines[0].split()[1])
    if 100 <= status < 200 and status != 101 and body:
        return parse_answer(body, head)
    headers = [tuple(p.strip() for p in line.split(":", 1)) for line in lines[1:]]
    if get(headers, "transfer-encoding") == "chunked" and not head:
        out, rest = b"", body
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            n = int(size, 16)
            out += rest[:n]
            rest = rest[n + 2:]
            if n == 0:
                break
        body = out
    return status, headers, body


def get(headers, name):
    found = [v for k, v in headers if k.lower() == name.lower()]
    return ", ".join(found) if found else None


def scratch():
    folder = tempfile.mkdtemp(prefix="hw-", dir="/var/tmp")
    os.chmod(folder, 0o755)
    return folder


def changed(domain, **more):
    d = copy.deepcopy(domain)
    d["revision"] += 1
    d.update(more)
    return d
