//! A real PowerDNS on its own database that zones are taken from, with its API, transfers and TSIG, and zones of every
//! kind in it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use headwater::demo::ports::PortLease;
use headwater::deploy::dns;
use headwater_events::dns::RrType;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{AssertSqlSafe, Executor};

use crate::support::{TestDb, eventually, test_home};

/// What PowerDNS comes with, as Debian has it.
const SCHEMA: &str = "/usr/share/pdns-backend-pgsql/schema/schema.pgsql.sql";
/// Kinds of zones, one after the other.
pub const KINDS: usize = 20;
/// Of them, those that cannot be taken in.
pub const FAULTY: usize = 16;

/// The key of the API: found nowhere but in its file.
pub const API_KEY: &str = "canary-api-key-5f1c";
/// The secret of the TSIG key, likewise.
pub const TSIG_SECRET: &str = "Y2FuYXJ5LXRzaWctc2VjcmV0LWNhbmFyeS10c2lnISE=";
/// Its name.
pub const TSIG_NAME: &str = "transfer.example.net";

/// A PowerDNS with zones.
pub struct Old {
    pub pool: PgPool,
    pub dns: SocketAddr,
    pub api: SocketAddr,
    pub dir: PathBuf,
    pub url_file: String,
    pub key_file: String,
    pub tsig_file: String,
    child: Child,
    _database: TestDb,
    _leases: [PortLease; 2],
}

impl Drop for Old {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

impl Old {
    /// Starts one with so many zones.
    pub async fn start(zones: usize) -> Self {
        // Whichever test is first installs it.
        let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let database = TestDb::new().await;
        let pool = database.pool().await;
        let schema = std::fs::read_to_string(SCHEMA).unwrap();
        pool.execute(AssertSqlSafe(schema)).await.unwrap();
        fill(&pool, zones).await;
        let home = test_home();
        let dir = home.dir().to_owned();
        let leases = [PortLease::take().unwrap(), PortLease::take().unwrap()];
        let (dns, api) = (leases[0].address(), leases[1].address());
        std::fs::write(dir.join("pdns.conf"), configuration(&database, dns, api, &dir)).unwrap();
        let child = Command::new("/usr/sbin/pdns_server")
            .arg(format!("--config-dir={}", dir.display()))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(dir.join("log")).unwrap())
            .spawn()
            .unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let url_file = file("url", database.url().expose());
        let (key_file, tsig_file) = (file("key", API_KEY), file("tsig", TSIG_SECRET));
        let old = Self {
            pool,
            dns,
            api,
            url_file,
            key_file,
            tsig_file,
            child,
            _database: database,
            _leases: leases,
            dir,
        };
        let answers = || async { dns::ask(old.dns, "nowhere.test", RrType::SOA).await.is_ok() };
        eventually("PowerDNS answers", answers, |answers| *answers).await;
        old
    }

    /// Asks its API.
    pub async fn call(&self, method: Method, path: &str, body: Value) -> reqwest::Response {
        let client = Client::builder().no_proxy().build().unwrap();
        let url = format!("http://{}/api/v1/servers/localhost{path}", self.api);
        let mut request = client.request(method, url).header("X-API-Key", API_KEY);
        if !body.is_null() {
            request = request.json(&body);
        }
        request.send().await.unwrap()
    }

    /// Has a zone signed.
    pub async fn sign(&self, zone: &str) {
        let body = json!({"keytype": "csk", "active": true});
        let answer = self.call(Method::POST, &format!("/zones/{zone}./cryptokeys"), body).await;
        assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
        self.call(Method::PUT, &format!("/zones/{zone}./rectify"), Value::Null).await;
    }

    pub async fn sql(&self, text: &str) {
        self.pool.execute(AssertSqlSafe(text.to_owned())).await.unwrap();
    }

    pub fn database(&self) -> Value {
        json!({"kind": "pdns_postgres", "database_url_file": self.url_file})
    }

    pub fn http(&self) -> Value {
        json!({"kind": "pdns_api", "url": format!("http://{}", self.api), "api_key_file": self.key_file})
    }

    /// Transfers of zones, signed.
    pub fn transfers(&self, zones: &[String]) -> Value {
        let tsig = json!({"name": TSIG_NAME, "algorithm": "hmac-sha256", "secret_file": self.tsig_file});
        json!({"kind": "axfr", "primary": self.dns.to_string(), "zones": zones, "tsig": tsig})
    }
}

fn configuration(database: &TestDb, dns: SocketAddr, api: SocketAddr, dir: &std::path::Path) -> String {
    let options: PgConnectOptions = database.url().expose().parse().unwrap();
    let password = database.url().expose().split(':').nth(2).unwrap().split('@').next().unwrap();
    format!(
        "daemon=no\nguardian=no\nlaunch=gpgsql\ngpgsql-dnssec=yes\ngpgsql-host={}\ngpgsql-port={}\ngpgsql-user={}\n\
         gpgsql-dbname={}\ngpgsql-password={password}\nlocal-address=127.0.0.1\nlocal-port={}\nsocket-dir={}\n\
         security-poll-suffix=\nversion-string=anonymous\ncache-ttl=0\nquery-cache-ttl=0\nnegquery-cache-ttl=0\n\
         zone-cache-refresh-interval=0\nzone-metadata-cache-ttl=0\ndnssec-key-cache-ttl=0\ndname-processing=yes\n\
         disable-axfr=no\nallow-axfr-ips=\nwebserver=yes\nwebserver-address=127.0.0.1\nwebserver-port={}\n\
         webserver-allow-from=127.0.0.1\napi=yes\napi-key={API_KEY}\nenable-lua-records=no\nsetuid=\nsetgid=\n",
        options.get_host(),
        options.get_port(),
        options.get_username(),
        options.get_database().unwrap(),
        dns.port(),
        dir.display(),
        api.port(),
    )
}

/// The name of the `n`th zone.
pub fn name(n: usize) -> String {
    let suffixes =
        ["com.ac", "edu.ac", "gov.ac", "net.ac", "mil.ac", "org.ac", "co.ae", "net.ae", "sch.ae", "ac.ae"];
    match n % KINDS {
        5 => format!("0/25.{}.2.192.in-addr.arpa", n / KINDS),
        17 => format!("single{n}"),
        19 if n / KINDS < suffixes.len() => suffixes[n / KINDS].to_owned(),
        _ => format!("z{n:03}.test"),
    }
}

/// A record: owner relative to the zone, type (none: an empty non-terminal), content, TTL, disabled.
type Record = (String, Option<&'static str>, String, i32, bool);

fn record(owner: &str, rrtype: &'static str, content: &str) -> Record {
    (owner.to_owned(), Some(rrtype), content.to_owned(), 300, false)
}

/// Every type that PowerDNS 4.7 has words for and that may be written here.
const TYPES: [(&str, &str); 30] = [
    ("A", "192.0.2.1"),
    ("AAAA", "2001:db8::1"),
    ("AFSDB", "1 afs.example.net"),
    ("APL", "1:192.0.2.0/24"),
    ("CAA", "0 issue \"ca.example.net\""),
    ("CERT", "1 0 0 MQ=="),
    ("CSYNC", "66 3 A NS AAAA"),
    ("DHCID", "AAIBY2/AuCccgoJbsaxcQc9TUapptP69lOjxfNuVAA2kjEA="),
    ("EUI48", "00-00-5e-00-53-2a"),
    ("EUI64", "00-00-5e-ef-10-00-00-2a"),
    ("HINFO", "\"PC\" \"Linux\""),
    ("HTTPS", "1 . alpn=h2"),
    ("KX", "10 kx.example.net"),
    ("L32", "10 10.1.2.0"),
    ("L64", "10 2001:db8:1140:1000"),
    ("LOC", "51 30 12.748 N 0 7 39.612 W 0.00m 1.00m 10000.00m 10.00m"),
    ("LP", "10 l64.example.net"),
    ("MX", "10 mail.example.net"),
    ("NAPTR", "100 50 \"s\" \"z3950+I2L+I2C\" \"\" _z3950._tcp.example.net"),
    ("NID", "10 14:4fff:ff20:ee64"),
    ("OPENPGPKEY", "mQENBFVHm5sBCADAXRVYm8MF"),
    ("PTR", "host.example.net"),
    ("RP", "admin.example.net txt.example.net"),
    ("SPF", "\"v=spf1 -all\""),
    ("SRV", "0 5 5060 sip.example.net"),
    ("SSHFP", "1 1 123456789abcdef67890123456789abcdef67890"),
    ("SVCB", "1 svc.example.net port=8443"),
    ("TLSA", "3 1 1 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
    ("TXT", "\"a; b\" \"\\\"c\\\"\""),
    ("URI", "10 1 \"https://www.example.net/\""),
];

/// What the `n`th zone holds besides what every zone does.
fn special(n: usize) -> Vec<Record> {
    let glue = "0".repeat(64);
    match n % KINDS {
        0 => TYPES.iter().map(|(rrtype, content)| record(&rrtype.to_lowercase(), rrtype, content)).collect(),
        1 => vec![
            record("*", "A", "192.0.2.2"),
            record("*.a", "TXT", "\"wild\""),
            // Without it PowerDNS takes the name for one that is not there, and answers by the wildcard above.
            ("a".to_owned(), None, String::new(), 0, false),
            record("x.a", "A", "192.0.2.3"),
        ],
        2 => vec![
            record("a.b.c", "A", "192.0.2.4"),
            ("b.c".to_owned(), None, String::new(), 0, false),
            ("c".to_owned(), None, String::new(), 0, false),
        ],
        3 => vec![
            record("sub", "NS", "ns.sub.Z"),
            record("sub", "NS", "ns.example.net"),
            record("ns.sub", "A", "192.0.2.53"),
            record("sub", "DS", &format!("1 13 2 {glue}")),
            record("old", "DNAME", "new.example.net"),
        ],
        4 => vec![record("long", "TXT", &format!("\"{}\" \"{}\"", "k".repeat(255), "l".repeat(145)))],
        6 => vec![
            ("zero".to_owned(), Some("A"), "192.0.2.5".to_owned(), 0, false),
            ("mixed".to_owned(), Some("A"), "192.0.2.6".to_owned(), 60, false),
            ("mixed".to_owned(), Some("A"), "192.0.2.7".to_owned(), 600, false),
        ],
        7 => vec![("off".to_owned(), Some("A"), "192.0.2.8".to_owned(), 300, true)],
        12 => vec![record("", "ALIAS", "target.example.net")],
        13 => vec![record("lua", "LUA", "A \"ifportup(443, {'192.0.2.1'})\"")],
        14 => vec![record("OUT", "A", "192.0.2.9")],
        15 => vec![record("upper", "CNAME", "WWW.Example.NET"), record("", "MX", "20 MAIL.example.net")],
        FAULTY => vec![record("bad", "TXT", "not in quotes")],
        17 => vec![record("nomail", "MX", "0 ."), record("none", "SRV", "0 0 0 .")],
        _ => Vec::new(),
    }
}

async fn fill(pool: &PgPool, zones: usize) {
    let numbers = 0..zones;
    let names: Vec<String> = numbers.clone().map(name).collect();
    let kinds: Vec<&str> = numbers
        .clone()
        .map(|n| match n % KINDS {
            11 => "SLAVE",
            9 => "MASTER",
            _ => "NATIVE",
        })
        .collect();
    let accounts: Vec<&str> = numbers.clone().map(|n| if n % KINDS == 9 { "acme" } else { "" }).collect();
    sqlx::query(
        "insert into domains (name, type, account, master) select n, t, a, case when t = 'SLAVE' then '192.0.2.99' end \
         from unnest($1::text[], $2::text[], $3::text[]) as u(n, t, a)",
    )
    .bind(&names)
    .bind(&kinds)
    .bind(&accounts)
    .execute(pool)
    .await
    .unwrap();
    type Row = (String, String, Option<&'static str>, String, i32, bool);
    let mut rows: Vec<Row> = Vec::new();
    for n in numbers {
        let zone = name(n);
        let soa =
            format!("ns1.old.example hostmaster.old.example {} 10800 3600 604800 3600", 2_026_010_100 + n);
        let common = [
            record("", "SOA", &soa),
            record("", "NS", "ns1.old.example"),
            record("", "NS", "ns2.old.example"),
            record("www", "A", "192.0.2.1"),
            record("www", "A", "192.0.2.11"),
            record("ftp", "CNAME", "www.Z"),
            record("mail", "MX", if n % KINDS == 5 { "10 mail.example.net" } else { "10 www.Z" }),
        ];
        for (owner, rrtype, content, ttl, disabled) in common.into_iter().chain(special(n)) {
            let owner = match owner.as_str() {
                "" => zone.clone(),
                "OUT" => "www.elsewhere.test".to_owned(),
                owner => format!("{owner}.{zone}"),
            };
            rows.push((zone.clone(), owner, rrtype, content.replace('Z', &zone), ttl, disabled));
        }
    }
    sqlx::query(
        "insert into records (domain_id, name, type, content, ttl, disabled, auth) \
         select d.id, u.o, u.t, case when u.t is not null then u.c end, case when u.t is not null then u.l end, u.x, true \
         from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int[], $6::bool[]) as u(z, o, t, c, l, x) \
         join domains d on d.name = u.z",
    )
    .bind(rows.iter().map(|row| row.0.as_str()).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.1.as_str()).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.2).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.3.as_str()).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.4).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.5).collect::<Vec<_>>())
    .execute(pool)
    .await
    .unwrap();
    pool.execute(AssertSqlSafe(format!(
        "update records set auth = false where name like 'ns.sub.%' or (type = 'NS' and name like 'sub.%'); \
         insert into comments (domain_id, name, type, modified_at, account, comment) \
           select id, 'www.' || name, 'A', 1, 'ann', 'the web' from domains where (id - 1) % {KINDS} = 8; \
         insert into domainmetadata (domain_id, kind, content) \
           select id, 'TSIG-ALLOW-AXFR', '{TSIG_NAME}' from domains; \
         insert into domainmetadata (domain_id, kind, content) \
           select id, 'ALSO-NOTIFY', '192.0.2.98' from domains where (id - 1) % {KINDS} = 18; \
         insert into tsigkeys (name, algorithm, secret) values ('{TSIG_NAME}', 'hmac-sha256', '{TSIG_SECRET}')"
    )))
    .await
    .unwrap();
}
