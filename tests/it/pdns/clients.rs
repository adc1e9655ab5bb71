//! Clients of PowerDNS as they are published, unmodified, against the whole system: what they write is answered by both
//! DNS clusters, and what they read is what they wrote.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use domain::base::Rtype;
use headwater::demo::home::Home;
use headwater::demo::ports::PortLease;
use headwater::secret::Secret;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::certs::mint;
use crate::support::{DnsStack, eventually, test_home};
use crate::system::{Client, Demo};

/// The system, and where the clients are.
struct Field {
    demo: Demo,
    api: Client,
    home: Home,
    programs: PathBuf,
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Where the clients are; they are installed where they are not.
async fn programs() -> PathBuf {
    let mut script = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/pdns-clients"));
    let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
    let made = script.env("CARGO_TARGET_DIR", target).stdin(Stdio::null()).output().await.unwrap();
    assert!(made.status.success(), "{}", told(&made));
    PathBuf::from(String::from_utf8(made.stdout).unwrap().trim())
}

impl Field {
    async fn start() -> Self {
        let (demo, programs) = tokio::join!(Demo::start(), programs());
        let api = Client::new(&demo.facts());
        Self { demo, api, home: test_home(), programs }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.home.dir().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn fact(&self, key: &str) -> String {
        self.demo.facts()[key].as_str().unwrap().to_owned()
    }

    fn dns(&self) -> SocketAddr {
        self.fact("dns").parse().unwrap()
    }

    /// Runs a client to its end; gives what it printed when it ended well.
    async fn run(&self, program: &str, args: &[&str], env: &[(&str, &str)]) -> Result<String, String> {
        let own = self.programs.join(program);
        let program = if own.exists() { own } else { PathBuf::from(program) };
        let mut command = Command::new(&program);
        command.args(args).envs(env.iter().copied()).current_dir(self.home.dir()).stdin(Stdio::null());
        // Nothing but the system is reached: what some look for elsewhere is refused at once.
        command.env("https_proxy", "http://127.0.0.1:9").env("no_proxy", "127.0.0.1,localhost");
        command.env("HOME", self.home.dir()).kill_on_drop(true);
        let output = command.output().await.unwrap_or_else(|error| {
            panic!("{}: {error}: run scripts/prepare lego pebble", program.display());
        });
        if output.status.success() { Ok(told(&output)) } else { Err(told(&output)) }
    }

    /// Awaits what dnsdist answers.
    async fn answered(&self, name: &str, rtype: Rtype, expected: &[&str]) {
        let server = self.dns();
        let look = || async {
            let answer = DnsStack::ask(server, name, rtype).await.ok()?;
            let mut data = answer.rdata;
            data.sort_unstable();
            Some(data)
        };
        let is_it = |seen: &Option<Vec<String>>| {
            seen.as_ref().is_some_and(|seen| {
                seen.len() == expected.len()
                    && expected.iter().all(|part| seen.iter().any(|one| one.contains(part)))
            })
        };
        eventually(&format!("{name} {rtype} is {expected:?}"), look, is_it).await;
    }
}

/// YAML, changed and run again: the second run finds nothing to do.
async fn octodns(field: &Field) {
    let address: SocketAddr = field.fact("api").strip_prefix("http://").unwrap().parse().unwrap();
    let config = field.file(
        "octodns.yaml",
        &format!(
            "providers:\n  config:\n    class: octodns.provider.yaml.YamlProvider\n    directory: ./zones\n    \
             enforce_order: false\n  headwater:\n    class: octodns_powerdns.PowerDnsProvider\n    host: {}\n    \
             port: {}\n    api_key: {}\nzones:\n  octo.example.:\n    sources: [config]\n    targets: [headwater]\n",
            address.ip(),
            address.port(),
            field.fact("admin_token")
        ),
    );
    let long = "k".repeat(400);
    let first = format!(
        "'':\n  - {{type: A, ttl: 300, values: [192.0.2.1, 192.0.2.2]}}\n  - {{type: MX, values: [{{exchange: \
         Mail.example.net., preference: 10}}]}}\n  - {{type: TXT, values: ['v=spf1 -all', 'a\\;b']}}\n  - {{type: CAA, \
         values: [{{flags: 0, tag: issue, value: ca.example.net}}]}}\nwww: {{type: CNAME, value: \
         octo.example.}}\nswap: {{type: A, value: 192.0.2.3}}\n'*.wild': {{type: AAAA, value: '2001:db8::1'}}\n_sip._tcp: \
         {{type: SRV, values: [{{priority: 1, weight: 2, port: 5060, target: sip.example.net.}}]}}\ndkim: {{type: TXT, \
         value: '{long}'}}\nold: {{type: A, value: 192.0.2.9}}\n"
    );
    field.file("zones/octo.example.yaml", &first);
    let args = ["--config-file", config.as_str(), "--doit"];
    let sync = || field.run("octodns-sync", &args, &[]);
    let made = sync().await.unwrap();
    assert!(made.contains("Creates="), "{made}");
    let again = sync().await.unwrap();
    assert!(again.contains("No changes were planned"), "{again}");
    field.answered("www.octo.example.", Rtype::CNAME, &["octo.example"]).await;
    field.answered("x.wild.octo.example.", Rtype::AAAA, &["2001:db8::1"]).await;
    let second = first
        .replace("swap: {type: A, value: 192.0.2.3}", "swap: {type: CNAME, value: www.octo.example.}")
        .replace("192.0.2.2", "192.0.2.7")
        .replace("old: {type: A, value: 192.0.2.9}\n", "");
    field.file("zones/octo.example.yaml", &second);
    let changed = sync().await.unwrap();
    assert!(changed.contains("Creates=1, Updates=1, Deletes=2"), "{changed}");
    field.answered("octo.example.", Rtype::A, &["192.0.2.1", "192.0.2.7"]).await;
    field.answered("swap.octo.example.", Rtype::CNAME, &["www.octo.example"]).await;
    let again = sync().await.unwrap();
    assert!(again.contains("No changes were planned"), "{again}");
    // A wrong key is told as such.
    let wrong = std::fs::read_to_string(&config).unwrap().replace(&field.fact("admin_token"), "wrong");
    let config = field.file("wrong.yaml", &wrong);
    let refused = field.run("octodns-sync", &["--config-file", &config], &[]).await.unwrap_err();
    assert!(refused.contains("401") || refused.to_lowercase().contains("unauthorized"), "{refused}");
}

/// The library that many clients are made with.
async fn lexicon(field: &Field) {
    let script = field.file(
        "with_lexicon.py",
        "import sys\nfrom lexicon.client import Client\nfrom lexicon.config import ConfigResolver\n\
         def ops():\n    return Client(ConfigResolver().with_dict({'provider_name': 'powerdns', 'domain': 'lexizone.com', \
         'powerdns': {'auth_token': sys.argv[2], 'pdns_server': sys.argv[1], \
         'pdns_server_id': 'localhost', 'pdns_disable_notify': False}}))\n\
         with ops() as o:\n    assert o.create_record('TXT', '_acme-challenge', 'token')\n\
         with ops() as o:\n    assert o.create_record('TXT', '_acme-challenge', 'second')\n\
         with ops() as o:\n    print(sorted(r['content'] for r in o.list_records('TXT', '_acme-challenge')))\n\
         with ops() as o:\n    assert o.create_record('A', 'www', '192.0.2.5')\n\
         with ops() as o:\n    assert o.delete_record(rtype='TXT', name='_acme-challenge', content='token')\n\
         with ops() as o:\n    print(sorted(r['content'] for r in o.list_records('TXT', '_acme-challenge')))\n",
    );
    let (url, key) = (field.fact("api"), field.fact("admin_token"));
    let said = field.run("python", &[&script, &url, &key], &[]).await.unwrap();
    assert!(said.contains("['second', 'token']") && said.contains("['second']"), "{said}");
    field.answered("www.lexizone.com.", Rtype::A, &["192.0.2.5"]).await;
}

async fn powerdns_cli(field: &Field) {
    let (url, key) = (field.fact("api"), field.fact("admin_token"));
    let cli = |args: &'static [&'static str]| {
        let (url, key) = (url.clone(), key.clone());
        async move {
            let mut all = args.to_vec();
            all.extend(["-u", url.as_str(), "-a", key.as_str(), "-j"]);
            field.run("powerdns-cli", &all, &[]).await.unwrap()
        }
    };
    cli(&["zone", "add", "cli.example.", "primary"]).await;
    cli(&["record", "add", "www", "cli.example.", "A", "192.0.2.6"]).await;
    assert!(cli(&["zone", "list"]).await.contains("cli.example."));
    assert!(cli(&["zone", "search", "www.cli*"]).await.contains("192.0.2.6"));
    field.answered("www.cli.example.", Rtype::A, &["192.0.2.6"]).await;
    assert!(cli(&["record", "export", "cli.example."]).await.contains("192.0.2.6"));
    assert!(cli(&["zone", "export", "cli.example."]).await.contains("192.0.2.6"));
    cli(&["zone", "rectify", "cli.example."]).await;
    cli(&["record", "delete", "www", "cli.example.", "A", "192.0.2.6"]).await;
    cli(&["zone", "delete", "cli.example.", "-f"]).await;
    assert!(!cli(&["zone", "list"]).await.contains("cli.example."));
}

/// A certificate authority that asks dnsdist.
struct Pebble {
    _child: Child,
    directory: String,
    certificate: String,
}

impl Pebble {
    async fn start(field: &Field) -> Self {
        let leaf = mint::self_signed(&["127.0.0.1", "localhost"]);
        let certificate = field.file("pebble.crt", &leaf.pem);
        let key = field.file("pebble.key", &leaf.key);
        let leases: Vec<PortLease> = (0..4).map(|_| PortLease::take().unwrap()).collect();
        let at = |index: usize| leases[index].port().address();
        let config = json!({"pebble": {
            "listenAddress": at(0).to_string(), "managementListenAddress": at(1).to_string(),
            "certificate": certificate, "privateKey": key, "httpPort": at(2).port(), "tlsPort": at(3).port(),
            "ocspResponderURL": "", "externalAccountBindingRequired": false, "certificateValidityPeriod": 86_400,
        }});
        let config = field.file("pebble.json", &config.to_string());
        let log = std::fs::File::create(field.home.dir().join("pebble.log")).unwrap();
        let mut command = Command::new("pebble");
        command.args(["-strict", "-config", &config, "-dnsserver", &field.dns().to_string()]);
        command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "0").kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().expect("pebble: run scripts/prepare lego pebble");
        let listening = || async { tokio::net::TcpStream::connect(at(0)).await.is_ok() };
        eventually("pebble listens", listening, |is| *is).await;
        Self { _child: child, directory: format!("https://{}/dir", at(0)), certificate }
    }
}

/// A token that writes challenges of one zone, and nothing else.
async fn challenge_key(field: &Field, zone: &str) -> Secret {
    let scope = json!({"verbs": ["read", "write"], "domains": [zone], "names": ["_acme-challenge"], "types": ["TXT"]});
    let body = json!({"name": format!("acme {zone}"), "scopes": [scope]});
    let (status, made) = field.api.send(Method::POST, "/api/me/tokens", Some(body)).await;
    assert_eq!(status, 201, "{made}");
    Secret::new(made["token"].as_str().unwrap().to_owned())
}

/// Names of the certificate in a file.
async fn names(field: &Field, path: &Path) -> String {
    let args = ["x509", "-noout", "-ext", "subjectAltName", "-in", path.to_str().unwrap()];
    field.run("openssl", &args, &[]).await.unwrap()
}

/// A certificate for a wildcard and its apex: two values at one name, and both are gone afterwards.
async fn lego(field: &Field, pebble: &Pebble) {
    let key = challenge_key(field, "lego.example").await;
    let (url, resolver) = (field.fact("api"), field.dns().to_string());
    let args = [
        "--server",
        pebble.directory.as_str(),
        "--accept-tos",
        "--email",
        "a@lego.example",
        "--path",
        "lego",
        "--domains",
        "*.lego.example",
        "--domains",
        "lego.example",
        "--dns",
        "pdns",
        "--dns.disable-cp",
        "--dns.resolvers",
        resolver.as_str(),
        "run",
    ];
    let env = [
        ("PDNS_API_URL", url.as_str()),
        ("PDNS_API_KEY", key.expose()),
        ("LEGO_CA_CERTIFICATES", pebble.certificate.as_str()),
    ];
    let said = field.run("lego", &args, &env).await.unwrap();
    let found = names(field, &field.home.dir().join("lego/certificates/_.lego.example.crt")).await;
    assert!(found.contains("DNS:*.lego.example") && found.contains("DNS:lego.example"), "{found}\n{said}");
    let (status, left) = field.api.send(Method::GET, "/api/domains/lego.example/rrsets", None).await;
    assert!(status == 200 && !left.to_string().contains("_acme-challenge"), "{left}");
}

async fn certbot(field: &Field, pebble: &Pebble) {
    let key = challenge_key(field, "certbot.example").await;
    let text = format!(
        "dns_multi_provider = pdns\nPDNS_API_KEY = \"{}\"\nPDNS_API_URL = \"{}\"\n",
        key.expose(),
        field.fact("api")
    );
    let ini = field.file("certbot.ini", &text);
    let resolver = field.dns().to_string();
    let args = [
        "certonly",
        "--non-interactive",
        "--agree-tos",
        "--register-unsafely-without-email",
        "--no-verify-ssl",
        "--server",
        pebble.directory.as_str(),
        "--config-dir",
        "certbot",
        "--work-dir",
        "certbot/work",
        "--logs-dir",
        "certbot/logs",
        "-a",
        "dns-multi",
        "--dns-multi-credentials",
        &ini,
        "--dns-multi-nameservers",
        &resolver,
        "--dns-multi-propagation-seconds",
        "3",
        "-d",
        "certbot.example",
        "-d",
        "*.certbot.example",
    ];
    let said = field.run("certbot", &args, &[]).await.unwrap();
    let found = names(field, &field.home.dir().join("certbot/live/certbot.example/cert.pem")).await;
    assert!(found.contains("DNS:*.certbot.example"), "{found}\n{said}");
}

/// Whoever prefers to wait can ask DNS at once.
async fn waiting(field: &Field) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let path = "/api/v1/servers/localhost/zones/lexizone.com.";
    for n in 0..5 {
        let change = super::replace("wait.lexizone.com.", "A", &[&format!("192.0.2.{}", 100 + n)]);
        let request = http.patch(format!("{}{path}", field.fact("api"))).header("Prefer", "wait=30");
        let request =
            request.header("X-API-Key", field.fact("admin_token")).json(&json!({"rrsets": [change]}));
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 204);
        assert_eq!(answer.headers()["x-operation-state"], "succeeded");
        assert_eq!(answer.headers()["preference-applied"], "wait");
        let served = DnsStack::ask(field.dns(), "wait.lexizone.com.", Rtype::A).await.unwrap();
        assert_eq!(served.rdata, [format!("192.0.2.{}", 100 + n)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn published_clients_work_unmodified() {
    let field = Field::start().await;
    for zone in ["lexizone.com", "lego.example", "certbot.example"] {
        let body = json!({"name": zone, "force_active": true});
        let (status, made) = field.api.send(Method::POST, "/api/domains", Some(body)).await;
        assert_eq!(status, 202, "{made}");
        // A zone that holds something is not emptied when its challenges go.
        let keep: Value = json!({"ttl": 300, "records": ["192.0.2.1"]});
        let path = format!("/api/domains/{zone}/rrsets/keep/A");
        assert_eq!(field.api.send(Method::PUT, &path, Some(keep)).await.0, 202);
    }
    let pebble = Pebble::start(&field).await;
    tokio::join!(
        octodns(&field),
        async {
            lexicon(&field).await;
            waiting(&field).await;
            powerdns_cli(&field).await;
        },
        async {
            lego(&field, &pebble).await;
            certbot(&field, &pebble).await;
        },
    );
}
