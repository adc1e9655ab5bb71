//! The keys that sign what edges are told: one that is added counts in every process at once, and no edge ever gets a
//! page that it would refuse.

use headwater::edge::{self, add_signing_key};
use headwater::vault::Vault;
use headwater_edge_wire::ids::EdgeId;
use headwater_edge_wire::manifest::Page;
use headwater_edge_wire::sign::PublicKey;
use headwater_edge_wire::verify::Pins;
use serde_json::{Value, json};

use super::agent::{Agent, reader, signature};
use super::lab::Lab;
use super::pages::follow;

/// Takes the page that a process gives now, as an agent does; which key signed it, and what is pinned then.
async fn page(agent: &Agent, pins: &Pins) -> (PublicKey, Pins) {
    let answer = agent.get(&format!("manifest?after={}&epoch=1", pins.through)).await.expect(200);
    let signed = signature(&answer);
    let page = Page::verify(answer.text.as_bytes(), &signed, pins, reader()).unwrap();
    let next = pins.after(&page);
    (*next.keys.get(signed.key).unwrap(), next)
}

async fn tell(agent: &Agent, sequence: u32, pins: &Pins) {
    let mut body: Value = serde_json::from_slice(&agent.heartbeat(sequence)).unwrap();
    let keys: Vec<_> = pins.keys.keys().iter().map(PublicKey::id).collect();
    body["keys"] = json!(keys);
    agent.post("heartbeat", &body).await.expect(200);
}

#[tokio::test]
async fn a_key_that_is_added_counts_in_every_process_at_once() {
    let lab = Lab::new().await;
    let config = format!("[secrets]\nkey_file = {:?}\n", lab.key_file);
    let twin = lab.api.join(&config).await;
    let bound = edge::bind(twin.app.clone(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let second = bound.address;
    tokio::spawn(edge::run(bound));
    let (mut agent, mut late) = (lab.enrolled("fra1").await, lab.enrolled("fra2").await);
    let signer = lab.signer().await;
    lab.put(&signer, 1, 10).await;
    lab.cursor(10).await;
    let at = |agent: &mut Agent, here: bool| agent.control = if here { lab.control } else { second };
    let (_, mut pins) = follow(&agent, agent.pins()).await;
    let (_, mut behind) = follow(&late, late.pins()).await;
    let old = pins.keys.keys().to_vec();
    assert_eq!(old.len(), 1);

    let vault = Vault::read(&lab.key_file).unwrap();
    let (new, waits_for) = add_signing_key(lab.pool(), &vault).await.unwrap();
    assert_eq!(waits_for, ["fra1", "fra2"]);
    // Told of by both at once, signed by the former one: no edge knows the new one yet.
    for here in [false, true] {
        at(&mut agent, here);
        let (signed, next) = page(&agent, &pins).await;
        assert_eq!((signed, next.keys.keys()), (old[0], &[old[0], new][..]), "here: {here}");
        pins = next;
    }
    // One of two has pinned it: the other would refuse it.
    tell(&agent, 1, &pins).await;
    tell(&late, 1, &behind).await;
    for here in [false, true] {
        at(&mut agent, here);
        assert_eq!(page(&agent, &pins).await.0, old[0], "here: {here}");
    }
    at(&mut late, false);
    behind = page(&late, &behind).await.1;
    tell(&late, 2, &behind).await;
    for here in [true, false] {
        at(&mut agent, here);
        at(&mut late, here);
        assert_eq!(page(&agent, &pins).await.0, new, "here: {here}");
        assert_eq!(page(&late, &behind).await.0, new, "here: {here}");
    }
    // Artifacts too, in both; what the former one signed still holds.
    for app in [&lab.api.app, &twin.app] {
        let signer = app.signer.current(app).await.unwrap();
        assert_eq!(signer.public().unwrap(), new);
        lab.put(&signer, 2, 20).await;
        lab.cursor(20).await;
        let (pages, _) = follow(&agent, pins.clone()).await;
        assert_eq!(super::pages::live(&pages).len(), 1);
    }
    // Whoever comes now pins both, and may be told by either; until it says so, the former one signs.
    let third = lab.enrolled("fra3").await;
    assert_eq!(third.pins().keys.keys(), [old[0], new]);
    assert_eq!(page(&third, &third.pins()).await.0, old[0]);
    tell(&third, 1, &third.pins()).await;
    assert_eq!(page(&third, &third.pins()).await.0, new);
}

#[tokio::test]
async fn a_ring_has_a_bound_and_a_disabled_edge_holds_nothing_up() {
    let lab = Lab::new().await;
    let agent = lab.enrolled("fra1").await;
    let vault = Vault::read(&lab.key_file).unwrap();
    let (first, waits_for) = add_signing_key(lab.pool(), &vault).await.unwrap();
    assert_eq!(waits_for, ["fra1"]);
    let signs = || async { lab.api.app.signer.current(&lab.api.app).await.unwrap().public().unwrap() };
    assert_ne!(signs().await, first);
    let edge: EdgeId = agent.edge;
    lab.act(edge, "disable").await;
    assert_eq!(signs().await, first);
    let (second, waits_for) = add_signing_key(lab.pool(), &vault).await.unwrap();
    assert_eq!((signs().await, waits_for), (second, Vec::new()));
    add_signing_key(lab.pool(), &vault).await.unwrap();
    let full = add_signing_key(lab.pool(), &vault).await.unwrap_err();
    assert!(full.to_string().contains("1 to 4 different keys"), "{full}");
}
