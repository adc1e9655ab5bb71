//! Keys are rotated while processes serve, through kills, and an old one can go afterwards; a tenant that is deleted
//! leaves nothing that can be opened.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Program, Output, Stdio};

use headwater::vault::{self, Opener, Owner, Place, Vault, VaultError, rotate};
use headwater_events::ids::TenantId;
use nix::sys::signal::{Signal, raise};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::postgres::PgPool;
use tempfile::TempDir;

use crate::certs::mint::{Ca, Leaf};
use crate::support::{Answer, TestApi};

const KIND: &str = "test_secret";
const FILE: &str = "HEADWATER_TEST_ROTATE_FILE";
const URL: &str = "HEADWATER_TEST_ROTATE_URL";
const POINT: &str = "HEADWATER_TEST_ROTATE_POINT";

struct Sealing {
    api: TestApi,
    file: PathBuf,
    _dir: TempDir,
}

fn settings(file: &Path) -> String {
    format!("[secrets]\nkey_file = {file:?}\n")
}

impl Sealing {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret-key");
        assert!(vault::make(&file).unwrap());
        let api = TestApi::start(&settings(&file)).await;
        Self { api, file, _dir: dir }
    }

    fn pool(&self) -> &PgPool {
        &self.api.app.pool
    }

    fn vault(&self) -> Vault {
        Vault::read(&self.file).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Seals as it was done before there were data keys.
    async fn old_seals(&self, count: i32) {
        let vault = self.vault();
        for version in 0..count {
            let place = Place { kind: KIND, id: "x", version };
            let sealed = vault.seal(place, &version.to_be_bytes()).unwrap();
            sqlx::query("insert into sealed_secrets values ($1, 'x', $2, '', $3)")
                .bind(KIND)
                .bind(version)
                .bind(sealed)
                .execute(self.pool())
                .await
                .unwrap();
        }
    }

    /// Every one of them opens to what it was, with this ring.
    async fn assert_opens(&self, vault: &Vault, count: i32) {
        let rows: Vec<(i32, Vec<u8>)> =
            sqlx::query_as("select version, sealed from sealed_secrets where kind = $1 order by version")
                .bind(KIND)
                .fetch_all(self.pool())
                .await
                .unwrap();
        assert_eq!(rows.len(), usize::try_from(count).unwrap());
        let opener = Opener::read(self.pool(), vault, rows.iter().map(|row| row.1.as_slice())).await.unwrap();
        for (version, sealed) in &rows {
            let place = Place { kind: KIND, id: "x", version: *version };
            let opened = opener.unseal(place, sealed).unwrap_or_else(|error| panic!("{version}: {error}"));
            assert_eq!(opened.expose(), version.to_be_bytes());
        }
    }

    /// `headwater admin rotate-keys`.
    fn run(&self, args: &[&str]) -> Output {
        let mut program = Program::new(env!("CARGO_BIN_EXE_headwater"));
        program.args(["admin", "rotate-keys"]).args(args).env_clear().stdin(Stdio::null());
        program.env("HEADWATER_DATABASE__URL", self.api.database.url().expose());
        program.env("HEADWATER_SECRET_KEY_FILE", &self.file);
        program.current_dir(self.file.parent().unwrap()).output().unwrap()
    }

    fn status(&self) -> Vec<Value> {
        let told = self.run(&["--status", "--json"]);
        assert!(told.status.success(), "{told:?}");
        let told: Value = serde_json::from_slice(&told.stdout).unwrap();
        told["keys"].as_array().unwrap().clone()
    }

    /// Takes every key but the first out of the file.
    fn keep_the_newest(&self) {
        let text = std::fs::read_to_string(&self.file).unwrap();
        let mut keys = 0;
        let is_kept = |line: &&str| {
            keys += u32::from(!line.starts_with('#'));
            line.starts_with('#') || keys == 1
        };
        let kept: Vec<&str> = text.lines().filter(is_kept).collect();
        std::fs::write(&self.file, kept.join("\n") + "\n").unwrap();
    }

    async fn certificate(&self, zone: &str, leaf: &Leaf, chain: &str) -> Answer {
        let path = format!("/api/domains/{zone}/tls/custom-certificate");
        self.api.call(Method::PUT, &path, leaf.body(Some(chain))).await
    }
}

/// A tenant with a domain and a certificate of its own: the tenant, and the place and bytes of its sealed key.
async fn owned(sealing: &Sealing, tenant: &str, zone: &str) -> (TenantId, String, Vec<u8>) {
    let id = sealing.api.tenant(tenant).await;
    let domain = json!({"name": zone, "force_active": true, "tenant": id});
    sealing.api.call(Method::POST, "/api/domains", domain).await.expect(202);
    let issuer = Ca::root("Root").below("Issuer");
    let leaf = issuer.leaf(&[zone]);
    sealing.certificate(zone, &leaf, &issuer.pem).await.expect(202);
    let query = "select s.id, s.sealed from sealed_secrets s join desired.certificates c on c.id::text = s.id \
        join desired.domains d on d.id = c.domain_id where d.name = $1";
    let (key, sealed) = sqlx::query_as(query).bind(zone).fetch_one(sealing.pool()).await.unwrap();
    (id, key, sealed)
}

#[tokio::test]
async fn a_secret_opens_for_its_owner_and_place_alone() {
    let sealing = Sealing::new().await;
    let (vault, pool) = (sealing.vault(), sealing.pool());
    let (ours, theirs) = (sealing.api.tenant("ours").await, sealing.api.tenant("theirs").await);
    let place = Place { kind: KIND, id: "x", version: 1 };
    let mut connection = pool.acquire().await.unwrap();
    let mut sealed = Vec::new();
    for owner in [Owner::Tenant(ours), Owner::Tenant(theirs), Owner::Platform] {
        sealed.push(vault.seal_for(&mut connection, owner, place, b"hush").await.unwrap());
    }
    let ids: std::collections::BTreeSet<&[u8]> = sealed.iter().map(|one| &one[1..17]).collect();
    assert_eq!(ids.len(), 3, "each owner has a key of its own");
    for one in &sealed {
        assert_eq!(
            vault.open_sealed(pool, place, one).await.unwrap_or_else(|e| panic!("{e}")).expose(),
            b"hush"
        );
        for other in [Place { kind: "y", ..place }, Place { id: "y", ..place }, Place { version: 2, ..place }]
        {
            assert!(matches!(vault.open_sealed(pool, other, one).await, Err(VaultError::Broken(_))));
        }
        for at in 0..one.len() {
            let mut changed = one.clone();
            changed[at] ^= 1;
            assert!(vault.open_sealed(pool, place, &changed).await.is_err(), "byte {at}");
            assert!(vault.open_sealed(pool, place, &one[..at]).await.is_err(), "{at} bytes");
        }
    }
    // The row of a data key that is given to another owner, or that takes another's place, opens nothing.
    let swap = "update data_keys k set wrapped = o.wrapped from data_keys o \
        where k.tenant_id = $1 and o.tenant_id = $2";
    sqlx::query(swap).bind(ours.as_uuid()).bind(theirs.as_uuid()).execute(pool).await.unwrap();
    assert!(matches!(vault.open_sealed(pool, place, &sealed[0]).await, Err(VaultError::Broken(_))));
    let give = "update data_keys set tenant_id = $2 where tenant_id = $1";
    sqlx::query(give).bind(theirs.as_uuid()).bind(uuid::Uuid::now_v7()).execute(pool).await.unwrap();
    assert!(matches!(vault.open_sealed(pool, place, &sealed[1]).await, Err(VaultError::Broken(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_rotated_out_while_two_processes_serve() {
    let sealing = Sealing::new().await;
    let twin = sealing.api.join(&settings(&sealing.file)).await;
    let (tenant, ..) = owned(&sealing, "acme", "acme.example").await;
    let (_, ann) = sealing.api.user("ann@example.test", false, &[tenant]).await;
    let made =
        sealing.api.call(Method::POST, "/api/me/tokens", json!({"name": "old"})).await.expect(201).json();
    let old_token = headwater::secret::Secret::new(made["token"].as_str().unwrap().to_owned());
    sealing.old_seals(250).await;
    let (_, before) = (sealing.vault(), sealing.status());
    assert_eq!((before.len(), &before[0]["newest"], &before[0]["secrets"]), (1, &json!(true), &json!(250)));

    let stop = tokio_util::sync::CancellationToken::new();
    let (address, stopped) = (twin.address, stop.clone());
    let issuer = Ca::root("Root").below("Issuer");
    let serving = async {
        let mut rounds = 0;
        while !stopped.is_cancelled() {
            for at in [sealing.api.address, address] {
                let leaf = issuer.leaf(&["acme.example"]);
                let path = "/api/domains/acme.example/tls/custom-certificate";
                let put =
                    sealing.api.request_at(at, Method::PUT, path).bearer_auth(sealing.api.admin.expose());
                let put = put.json(&leaf.body(Some(&issuer.pem))).send().await.unwrap();
                Answer::of(put).await.expect(202);
                let me = sealing.api.request_at(at, Method::GET, "/api/me").bearer_auth(ann.expose());
                Answer::of(me.send().await.unwrap()).await.expect(200);
            }
            rounds += 1;
        }
        rounds
    };
    let rotating = async {
        let file = sealing.file.clone();
        let done = tokio::task::block_in_place(|| sealing.run(&["--add-key"]));
        assert!(done.status.success(), "{done:?}");
        assert!(String::from_utf8_lossy(&done.stderr).contains("250"), "progress is told: {done:?}");
        stop.cancel();
        file
    };
    let (rounds, _) = tokio::join!(serving, rotating);
    assert!(rounds > 0);
    let after = sealing.status();
    assert_eq!(after.len(), 2, "{after:?}");
    assert_eq!((&after[0]["newest"], &after[0]["dispensable"]), (&json!(true), &json!(false)), "{after:?}");
    let old = json!({"in_file": true, "data_keys": 0, "secrets": 0, "dispensable": true});
    for (key, value) in old.as_object().unwrap() {
        assert_eq!(&after[1][key], value, "{key}: {after:?}");
    }
    let told = String::from_utf8(sealing.run(&["--status"]).stdout).unwrap();
    assert!(told.contains("it can be taken out of the file"), "{told}");

    // And it can: everything opens, in a process that starts with the new key alone; every token works still.
    sealing.keep_the_newest();
    sealing.assert_opens(&sealing.vault(), 250).await;
    let fresh = sealing.api.join(&settings(&sealing.file)).await;
    for token in [&old_token, &ann, &sealing.api.admin] {
        let me = sealing.api.request_at(fresh.address, Method::GET, "/api/me").bearer_auth(token.expose());
        Answer::of(me.send().await.unwrap()).await.expect(200);
    }
    // What it makes works at those that started before.
    let make = sealing.api.request_at(fresh.address, Method::POST, "/api/me/tokens");
    let make =
        make.bearer_auth(sealing.api.admin.expose()).json(&json!({"name": "new"})).send().await.unwrap();
    let made = Answer::of(make).await.expect(201).json();
    let me = sealing.api.request(Method::GET, "/api/me").bearer_auth(made["token"].as_str().unwrap());
    Answer::of(me.send().await.unwrap()).await.expect(200);
}

/// Not a test by itself: the process that is killed.
#[tokio::test]
async fn child() {
    let read = |name| std::env::var(name).ok();
    let (Some(url), Some(file), Some(point)) = (read(URL), read(FILE), read(POINT)) else { return };
    let pool = PgPool::connect(&url).await.unwrap();
    fail::cfg_callback(point, || raise(Signal::SIGKILL).unwrap()).unwrap();
    let vault = Vault::read(Path::new(&file)).unwrap_or_else(|error| panic!("{error}"));
    let _ended = rotate::rotate(&pool, &vault, |_, _, _| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_that_is_killed_is_begun_again() {
    let sealing = Sealing::new().await;
    owned(&sealing, "acme", "acme.example").await;
    sealing.old_seals(3).await;
    vault::add(&sealing.file).unwrap_or_else(|error| panic!("{error}"));
    let points =
        ["rotate.before_rewrap", "rotate.after_rewrap", "rotate.before_reseal", "rotate.after_reseal"];
    for point in points {
        let status = Program::new(std::env::current_exe().unwrap())
            .args(["secrets::rotation::child", "--exact", "--nocapture"])
            .env(URL, sealing.api.database.url().expose())
            .env(FILE, &sealing.file)
            .env(POINT, point)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(9), "{point}: it was not killed there");
        sealing.assert_opens(&sealing.vault(), 3).await;
        assert!(!sealing.status()[1]["dispensable"].as_bool().unwrap(), "{point}: it is not done");
    }
    let done = sealing.run(&["--json"]);
    assert!(done.status.success(), "{done:?}");
    let done: Value = serde_json::from_slice(&done.stdout).unwrap();
    // The first kills came after one data key and one secret.
    assert_eq!(done["rotated"], json!({"data_keys": 0, "secrets": 2, "unreadable": 0}), "{done}");
    assert_eq!(done["keys"][1]["dispensable"], true, "{done}");
    sealing.keep_the_newest();
    sealing.assert_opens(&sealing.vault(), 3).await;
    // What cannot be opened is told, and nothing is lost of the rest.
    sqlx::query("update sealed_secrets set sealed = '\\x01' || substring(sealed from 2) where kind = $1")
        .bind(KIND)
        .execute(sealing.pool())
        .await
        .unwrap();
    let told = sealing.run(&[]);
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    assert!(String::from_utf8_lossy(&told.stderr).contains("3 could not be opened"), "{told:?}");
}

#[tokio::test]
async fn a_tenant_that_is_deleted_leaves_nothing_that_opens() {
    let sealing = Sealing::new().await;
    let (gone, key, sealed) = owned(&sealing, "gone", "gone.example").await;
    let (_, other, others) = owned(&sealing, "stays", "stays.example").await;
    let (vault, pool) = (sealing.vault(), sealing.pool());
    let place = |id| Place { kind: "certificate_key", id, version: 1 };
    assert!(vault.open_sealed(pool, place(&key), &sealed).await.is_ok());
    let count = || async {
        let query = sqlx::query_scalar::<_, i64>("select count(*) from data_keys where tenant_id = $1");
        query.bind(gone.as_uuid()).fetch_one(pool).await.unwrap()
    };
    let tenant = format!("/api/tenants/{gone}");
    sealing.api.call(Method::DELETE, &tenant, Value::Null).await.expect_problem(409, "owns_domains");
    assert_eq!(count().await, 1);
    sealing.api.call(Method::DELETE, "/api/domains/gone.example", Value::Null).await.expect(202);
    // Its name is held for it no longer.
    sqlx::query(
        "update desired.domains set hold_until = now() - interval '1 day' where name = 'gone.example'",
    )
    .execute(pool)
    .await
    .unwrap();
    sealing.api.call(Method::DELETE, &tenant, Value::Null).await.expect(200);
    assert_eq!(count().await, 0);
    assert!(matches!(vault.open_sealed(pool, place(&key), &sealed).await, Err(VaultError::Gone)));
    assert!(vault.open_sealed(pool, place(&other), &others).await.is_ok());
    // No new one is made for it.
    let mut connection = pool.acquire().await.unwrap();
    let made = vault.seal_for(&mut connection, Owner::Tenant(gone), place("x"), b"x").await;
    assert!(matches!(made, Err(VaultError::Gone)));
}
