//! The projection `edge`: what is published is what was asked for, a rebuild gives what live work gave, and what
//! cannot be published leaves what is.

use std::sync::Arc;

use headwater::config::Config;
use headwater::operation::project::{self, Stepped};
use headwater::rebuild::Intent;
use headwater_edge_wire::artifact::{Artifact, ArtifactBudget};
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::secret::SecretArray;
use headwater_edge_wire::sign::{Context, Signature, SigningKey};
use headwater_events::actor::Caller;

use headwater_events::domain::{CachePatch, DomainCommand};
use headwater_events::event::Projection;
use headwater_events::ids::Position;
use headwater_projections::edge::{Edge, NoKey, Sign};
use sqlx::postgres::PgPool;
use tokio::sync::watch;

use super::{host, on, purge, unhost};
use crate::support::projection;
use crate::support::world::{Runs, World, put};

struct Key(SigningKey);

impl Sign for Key {
    fn sign(&self, checksum: &Checksum) -> Result<Option<Signature>, sqlx::Error> {
        Ok(Some(self.0.sign(Context::Artifact, checksum.as_bytes()).unwrap()))
    }
}

fn key() -> Key {
    Key(SigningKey::from_seed(&SecretArray::from_slice(&[7; 32]).unwrap()).unwrap())
}

fn small() -> Edge {
    Edge {
        budget: ArtifactBudget::new(64 << 10).unwrap(),
        signer: Arc::new(key()),
        moved: watch::channel(Position::ZERO).0,
    }
}

async fn follow(world: &World, edge: &Edge) {
    let head = world.head().await;
    loop {
        match project::step(&world.app, edge).await.unwrap() {
            Stepped::AtHead(at) if at >= head => return,
            Stepped::Fenced => panic!("nobody else runs it"),
            _ => {}
        }
    }
}

/// Everything that the log tells of what is published, as text.
async fn dump(pool: &PgPool) -> Vec<String> {
    let query = "select (to_jsonb(d) - '{key_id,signature}'::text[])::text || coalesce(encode(a.bytes, 'escape'), '-') \
                 from edge.domains d left join edge.artifacts a on a.checksum = d.checksum order by d.domain_id";
    sqlx::query_scalar(query).fetch_all(pool).await.unwrap()
}

async fn published(world: &World, name: &str) -> Option<Artifact> {
    let query = "select a.bytes from edge.domains d join edge.artifacts a on a.checksum = d.checksum \
                 where d.name = $1 and not d.removed";
    let bytes: Option<Vec<u8>> =
        sqlx::query_scalar(query).bind(name).fetch_optional(&world.app.pool).await.unwrap();
    bytes.map(|bytes| Artifact::parse(&bytes, ArtifactBudget::default()).unwrap())
}

/// Sequence, revision, removed, fault.
async fn row(world: &World, name: &str) -> Option<(i64, i64, bool, Option<String>)> {
    let query = "select sequence, revision, removed, fault from edge.domains where name = $1";
    sqlx::query_as(query).bind(name).fetch_optional(&world.app.pool).await.unwrap()
}

async fn submit(world: &World, command: headwater::command::Command) -> i64 {
    let outcome = world.submit(Caller::system(), command).await;
    outcome.position.map_or(0, |position| position.get())
}

async fn rebuild(world: &World) {
    let _found = projection::run(&world.app, Projection::Edge, Intent::Rebuild).await;
}

async fn differences(world: &World) -> usize {
    projection::run(&world.app, Projection::Edge, Intent::Verify).await.len()
}

#[tokio::test]
async fn what_is_published_is_what_was_asked_for() {
    let world = World::with(Runs::Streams, |_| {}).await;
    let edge = small();
    for zone in ["a.test", "b.test", "c.test"] {
        world.domain(zone, world.tenant).await;
    }
    // Records and settings of a cache alone are nothing to an edge.
    submit(&world, put("a.test", "x", "192.0.2.1")).await;
    submit(&world, purge("c.test")).await;
    follow(&world, &edge).await;
    assert_eq!(dump(&world.app.pool).await, Vec::<String>::new());

    submit(&world, host("a.test", "www", "1.1.1.1")).await;
    let first = submit(&world, host("a.test", "@", "o.example.net")).await;
    follow(&world, &edge).await;
    let artifact = published(&world, "a.test").await.unwrap();
    assert!(artifact.check().is_empty());
    let names: Vec<&str> = artifact.hostnames.iter().map(|hostname| hostname.name.as_str()).collect();
    assert_eq!((names, artifact.revision.get()), (vec!["a.test", "www.a.test"], 4));
    assert_eq!(row(&world, "a.test").await.unwrap(), (first, 4, false, None));

    // A DNS edit changes nothing of it; a purge does, and so do its cache's settings.
    let before = dump(&world.app.pool).await;
    submit(&world, put("a.test", "y", "192.0.2.1")).await;
    follow(&world, &edge).await;
    assert_eq!(dump(&world.app.pool).await, before);
    let purged = submit(&world, purge("a.test")).await;
    follow(&world, &edge).await;
    assert_eq!(row(&world, "a.test").await.unwrap().0, purged);
    assert_eq!(published(&world, "a.test").await.unwrap().cache.epoch, 1);
    let patch = CachePatch { edge_ttl_seconds: Some(Some(600)), ..CachePatch::default() };
    let last = submit(&world, on("a.test", DomainCommand::PatchCache(patch))).await;
    follow(&world, &edge).await;
    let artifact = published(&world, "a.test").await.unwrap();
    assert_eq!((artifact.cache.epoch, artifact.cache.edge_ttl_seconds), (1, 600));
    assert_eq!(row(&world, "a.test").await.unwrap().0, last);

    // Signed once, by the key it was given.
    let signed: (Vec<u8>, Vec<u8>, Vec<u8>) =
        sqlx::query_as("select checksum, key_id, signature from edge.domains where name = 'a.test'")
            .fetch_one(&world.app.pool)
            .await
            .unwrap();
    let checksum = Checksum::from_bytes(signed.0.try_into().unwrap());
    let signature = key().sign(&checksum).unwrap().unwrap();
    assert_eq!(
        (signed.1, signed.2),
        (signature.key.as_bytes().to_vec(), signature.value.as_bytes().to_vec())
    );

    // Deleted, restored, and its last name gone.
    let gone = submit(&world, on("a.test", DomainCommand::Delete)).await;
    follow(&world, &edge).await;
    assert_eq!(row(&world, "a.test").await.unwrap(), (gone, 8, true, None));
    submit(&world, on("a.test", DomainCommand::Restore)).await;
    follow(&world, &edge).await;
    assert_eq!(published(&world, "a.test").await.unwrap().hostnames.len(), 2);
    // Disabled and enabled.
    let gone = submit(&world, on("a.test", DomainCommand::Disable)).await;
    follow(&world, &edge).await;
    assert_eq!(row(&world, "a.test").await.unwrap(), (gone, 10, true, None));
    submit(&world, on("a.test", DomainCommand::Enable)).await;
    follow(&world, &edge).await;
    assert_eq!(published(&world, "a.test").await.unwrap().hostnames.len(), 2);
    submit(&world, unhost("a.test", "@")).await;
    submit(&world, unhost("a.test", "www")).await;
    follow(&world, &edge).await;
    assert_eq!(published(&world, "a.test").await, None);
    assert!(row(&world, "a.test").await.unwrap().2);
}

#[tokio::test]
async fn what_cannot_be_published_leaves_what_is() {
    let tight = |config: &mut Config| config.sites.artifact = ArtifactBudget::new(64 << 10).unwrap();
    let world = World::with(Runs::Streams, tight).await;
    let edge = headwater::edge::signing::projection(&world.app).await;
    world.domain("a.test", world.tenant).await;
    submit(&world, host("a.test", "www", "1.1.1.1")).await;
    follow(&world, &edge).await;
    let good = row(&world, "a.test").await.unwrap();
    let bytes = published(&world, "a.test").await.unwrap();
    // More than 400 octets a name: the budget of 64 KiB is crossed on the way.
    let long = format!("{}.example.net", vec!["o".repeat(60); 3].join("."));
    for n in 0..200 {
        submit(&world, host("a.test", &format!("n{n}"), &long)).await;
    }
    follow(&world, &edge).await;
    let faulty = row(&world, "a.test").await.unwrap();
    assert_eq!((faulty.0, faulty.1, faulty.2), (good.0, good.1, false), "the last good one stays");
    assert!(
        faulty.3.as_ref().unwrap().contains("revision 202: the artifact cannot be published"),
        "{faulty:?}"
    );
    assert_eq!(published(&world, "a.test").await.as_ref(), Some(&bytes));
    // A rebuild does not know the last good one from the log: it keeps it.
    rebuild(&world).await;
    assert_eq!(row(&world, "a.test").await.unwrap(), faulty);
    assert_eq!((published(&world, "a.test").await.unwrap(), differences(&world).await), (bytes, 0));
    // Smaller again: it is published, and the fault is gone.
    for n in 0..150 {
        submit(&world, unhost("a.test", &format!("n{n}"))).await;
    }
    follow(&world, &edge).await;
    assert_eq!(row(&world, "a.test").await.unwrap().3, None);
    assert_eq!(published(&world, "a.test").await.unwrap().hostnames.len(), 51);
}

#[tokio::test]
async fn what_was_published_without_a_key_is_signed_later() {
    let world = World::with(Runs::Streams, |_| {}).await;
    let unsigned = Edge {
        budget: ArtifactBudget::default(),
        signer: Arc::new(NoKey),
        moved: watch::channel(Position::ZERO).0,
    };
    for zone in ["a.test", "b.test"] {
        world.domain(zone, world.tenant).await;
        submit(&world, host(zone, "www", "1.1.1.1")).await;
    }
    follow(&world, &unsigned).await;
    let count = "select count(*) from edge.domains where signature is null";
    let left = || sqlx::query_scalar::<_, i64>(count).fetch_one(&world.app.pool);
    assert_eq!(left().await.unwrap(), 2);
    let mut connection = world.app.pool.acquire().await.unwrap();
    assert_eq!(unsigned.sign_unsigned(&mut connection, 10).await.unwrap(), 0);
    assert_eq!(small().sign_unsigned(&mut connection, 1).await.unwrap(), 1);
    assert_eq!(small().sign_unsigned(&mut connection, 10).await.unwrap(), 1);
    assert_eq!(left().await.unwrap(), 0);
}

/// Rebuild = live, over a history that the numbers choose, followed in runs of any length.
#[tokio::test]
async fn a_rebuild_gives_what_live_work_gave() {
    let world = World::with(Runs::Streams, |_| {}).await;
    let edge = headwater::edge::signing::projection(&world.app).await;
    let zones = ["a.test", "b.test", "c.test", "d.test"];
    for zone in zones {
        world.domain(zone, world.tenant).await;
    }
    // A small generator with a fixed seed, so that a failure can be repeated.
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut next = |most: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % most
    };
    let mut deleted = [false; 4];
    for _ in 0..200 {
        let zone = usize::try_from(next(4)).unwrap();
        let (name, owner) = (zones[zone], format!("h{}", next(3)));
        let command = match next(10) {
            _ if deleted[zone] => on(name, DomainCommand::Restore),
            0..=3 => host(name, &owner, &format!("1.1.1.{}", next(3))),
            4 | 5 => unhost(name, &owner),
            6 => purge(name),
            7 => {
                let ttl = Some(Some(i64::try_from(next(3)).unwrap()));
                on(
                    name,
                    DomainCommand::PatchCache(CachePatch { edge_ttl_seconds: ttl, ..CachePatch::default() }),
                )
            }
            8 => put(name, "x", &format!("192.0.2.{}", next(9))),
            _ => on(name, DomainCommand::Delete),
        };
        let turn = matches!(
            &command,
            headwater::command::Command::Domain {
                command: DomainCommand::Restore | DomainCommand::Delete,
                ..
            }
        );
        // What is absent cannot be taken away: that is no part of the history.
        let meta = headwater::command::Meta::internal();
        let outcome = world.app.commit.submit(Caller::system(), command, meta).await;
        if outcome.is_ok() && turn {
            deleted[zone] = !deleted[zone];
        }
        if next(4) == 0 {
            follow(&world, &edge).await;
        }
    }
    follow(&world, &edge).await;
    let live = dump(&world.app.pool).await;
    assert_eq!(live.len(), 4, "{live:?}");
    assert_eq!(differences(&world).await, 0);
    rebuild(&world).await;
    assert_eq!(dump(&world.app.pool).await, live);
    // From nothing at all.
    for text in ["delete from edge.domains", "delete from edge.artifacts"] {
        sqlx::query(text).execute(&world.app.pool).await.unwrap();
    }
    assert!(differences(&world).await >= 4);
    rebuild(&world).await;
    assert_eq!(dump(&world.app.pool).await, live);
    // What somebody altered is found, and set right.
    for text in [
        "update edge.artifacts set bytes = bytes || 'x'::bytea",
        "update edge.domains set sequence = sequence + 1",
        "update edge.domains set removed = not removed",
        "insert into edge.domains (domain_id, name, sequence, revision, removed) values (gen_random_uuid(), 'z.test', 1, 1, true)",
    ] {
        sqlx::query(text).execute(&world.app.pool).await.unwrap();
        assert!(differences(&world).await > 0, "{text}");
        rebuild(&world).await;
        assert_eq!(dump(&world.app.pool).await, live, "{text}");
        assert_eq!(differences(&world).await, 0, "{text}");
    }
}

#[cfg(feature = "failpoints")]
mod killed {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    use headwater::edge::signing::projection;
    use headwater::history::hub::Hub;
    use headwater::operation::project;
    use headwater::secret::Secret;
    use tokio_util::sync::CancellationToken;

    use super::{differences, dump, follow, host, purge, rebuild, submit};
    use crate::support::world::{Runs, World, app, connect};

    const URL: &str = "HEADWATER_TEST_EDGE_URL";
    const POINT: &str = "HEADWATER_TEST_EDGE_POINT";

    /// Not a test by itself: the process that is killed.
    #[tokio::test]
    async fn edge_child() {
        let Ok(url) = std::env::var(URL) else { return };
        let kill = || nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap();
        fail::cfg_callback(std::env::var(POINT).unwrap(), kill).unwrap();
        let url = Secret::new(url);
        let app = app(&url, connect(&url).await, &CancellationToken::new(), Hub::default(), |_| {});
        let edge = projection(&app).await;
        project::run(app, edge).await;
    }

    #[tokio::test]
    async fn a_killed_projector_loses_and_doubles_nothing() {
        let world = World::with(Runs::Streams, |_| {}).await;
        let edge = projection(&world.app).await;
        world.domain("a.test", world.tenant).await;
        for n in 0..8 {
            submit(&world, host("a.test", &format!("n{n}"), "1.1.1.1")).await;
            submit(&world, purge("a.test")).await;
            let point = ["project.before_commit", "project.after_commit"][n % 2];
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "sites::edge::killed::edge_child", "--nocapture"])
                .env(URL, world.url.expose())
                .env(POINT, point)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let ended = tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap();
            assert_eq!(ended.signal(), Some(9), "{point}");
        }
        follow(&world, &edge).await;
        assert_eq!(differences(&world).await, 0);
        let live = dump(&world.app.pool).await;
        rebuild(&world).await;
        assert_eq!(dump(&world.app.pool).await, live);
    }
}
