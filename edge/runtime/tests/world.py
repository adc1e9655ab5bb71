"""What all groups share: certificates, two origins (one with TLS), a resolver, and one cell with three domains."""
import shutil

from harness import PROTECTED, QUARANTINE, Cell, Certificates, domain_of, free_ports, origin_of, scratch
from origin import Origin, Resolver


class World:
    def __init__(self):
        self.folder = scratch()
        self.certs = Certificates(self.folder + "/ca")
        self.ports = free_ports(5)
        self.origin = Origin(self.ports[0])
        self.backup = Origin(self.ports[1], name="backup")
        self.secure = Origin(self.ports[2], tls=self.certs.leaf("secure.test"), name="secure")
        self.dead = self.ports[3]
        self.resolver = Resolver(self.ports[4])
        self.resolver.names.update({"origin.test": ["127.0.0.1"], "secure.test": ["127.0.0.1"], "backup.test": ["127.0.0.1"],
                                    "dead.test": ["127.0.0.1"]})
        self.cells = []

    def cell(self, name, **more):
        c = Cell(f"{self.folder}/{name}", f"127.0.0.1:{self.ports[4]}", self.certs, **more)
        self.cells.append(c)
        return c

    def plain_origin(self, **more):
        return origin_of("origin.test", self.ports[0], **more)

    def domains(self, cell):
        """example.com and example.net with certificates, narrow.test with stricter profiles."""
        com = domain_of("example.com", {n + ".example.com": self.plain_origin(websocket=True) for n in ("a", "b")})
        com["hosts"]["*.wild.example.com"] = {"origin": self.plain_origin()}
        com["certs"] = [cell.key("11111111-1111-4111-8111-111111111111", *self.certs.leaf("example.com", "*.example.com"),
                                 ["example.com", "*.example.com"])]
        net = domain_of("example.net", {"b.example.net": self.plain_origin(host_header="b.example.net")})
        net["certs"] = [cell.key("22222222-2222-4222-8222-222222222222", *self.certs.leaf("example.net", "*.example.net"),
                                 ["example.net", "*.example.net"])]
        protected = domain_of("protected.test", {"protected.test": self.plain_origin()}, security=dict(PROTECTED))
        quarantine = domain_of("quarantine.test", {"quarantine.test": self.plain_origin()}, security=dict(QUARANTINE))
        return [com, net, protected, quarantine]

    def close(self, keep=False):
        for c in self.cells:
            c.stop()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


class Report:
    """Counts and prints; a line of a failure tells what was expected."""

    def __init__(self):
        self.passed, self.failed, self.noted = 0, [], []

    def check(self, what, ok, got=None):
        if ok:
            self.passed += 1
        else:
            self.failed.append(what)
            print(f"FAIL {what}: {got!r}", flush=True)
        return ok

    def equal(self, what, got, want):
        return self.check(f"{what} (wants {want!r})", got == want, got)

    def note(self, text):
        self.noted.append(text)
        print("note " + text, flush=True)
