//! Streams of readers that lose what they read: nothing after the loss is sent, by the order of the log.

use headwater_events::actor::Role;
use headwater_events::admin::{AdminCommand, OwnedDomain};
use headwater_events::dns::DomainName;
use headwater_events::ids::{DomainId, TenantId};
use serde_json::Value;

use crate::support::log::size;
use crate::support::sse::{Stream, position};
use crate::support::world::{Runs, World};

/// Rounds of the test in `make test`, and of the campaign of `make torture`.
const ROUNDS_COUNT: (usize, usize) = (4, 100);
/// Streams of one reader.
const STREAMS_COUNT: usize = 3;
/// Events that flow while a membership ends.
const FLOOD_EVENTS: usize = 500;

fn owned(name: &str, id: DomainId, tenant: TenantId) -> OwnedDomain {
    OwnedDomain { id, name: DomainName::parse(name).unwrap(), tenant }
}

/// A member, of the tenant or of the domain alone, reads along or from far behind while events flow and its membership
/// ends. Its own marker afterwards says that everything before it was read.
async fn round(world: &World, ours: TenantId, id: DomainId, number: usize) {
    let reader = world.person(&format!("r{number}@example.test"), &[]).await;
    let marks = world.new_tenant(&format!("marks {number}")).await;
    world.admin(AdminCommand::AddMember { tenant: marks, user: reader.user, role: None }).await;
    let (user, single) = (reader.user, number.is_multiple_of(2));
    let domain = || owned("ours.test", id, ours);
    let (add, remove) = if single {
        let role = Role::Viewer;
        let add = AdminCommand::AddDomainMember { domain: domain(), user, role };
        (add, AdminCommand::RemoveDomainMember { domain: domain(), user })
    } else {
        let add = AdminCommand::AddMember { tenant: ours, user, role: Some(Role::Viewer) };
        (add, AdminCommand::RemoveMember { tenant: ours, user })
    };
    world.admin(add.clone()).await;
    let query = if number % 4 < 2 { "" } else { "?after=0" };
    let mut streams = Vec::new();
    for _ in 0..STREAMS_COUNT {
        let mut stream = Stream::open(world, &reader.bearer, query, None).await;
        assert!(stream.read().await);
        streams.push(stream);
    }
    let flood = world.flood("ours.test", FLOOD_EVENTS);
    let end = async {
        tokio::task::yield_now().await;
        world.admin(remove).await.position.unwrap()
    };
    let ((), ended) = tokio::join!(flood, end);
    assert!(world.head().await > ended, "the flood outlasts the membership");
    let mark = format!("mark{number}.test");
    let marked = world.domain(&mark, marks).await.1.position.unwrap();
    for stream in &mut streams {
        for event in stream.up_to(marked).await {
            let data: Value = serde_json::from_str(&event.data).unwrap();
            let foreign = data["tenant"] == ours.to_string();
            assert!(!foreign || position(&event) < ended, "{} after {ended}: {data}", position(&event));
        }
    }
    // Gained again without a reconnect.
    let added = world.admin(add).await.position.unwrap();
    world.flood("ours.test", 3).await;
    for stream in &mut streams {
        let event = stream.next().await.unwrap();
        assert_eq!(position(&event), added, "{event:?}");
        let data: Value = serde_json::from_str(&stream.next().await.unwrap().data).unwrap();
        assert_eq!(data["domain"], "ours.test");
    }
}

#[tokio::test]
async fn torture_nothing_after_a_membership_is_ever_sent() {
    let world = World::with(Runs::SmallRing, |_| {}).await;
    let ours = world.new_tenant("ours").await;
    let (id, _) = world.domain("ours.test", ours).await;
    for number in 0..size(ROUNDS_COUNT.0, ROUNDS_COUNT.1) {
        round(&world, ours, id, number).await;
    }
}
