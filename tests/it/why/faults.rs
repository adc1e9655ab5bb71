//! Faults of what is desired, and of its deployment.

use headwater_events::admin::AdminCommand;
use headwater_events::dns::RrType;
use headwater_events::domain::DomainCommand;
use headwater_events::event::PauseScope;

use super::{Asking, ZONE};
use crate::deploy::lab::domain;

const WWW: (&str, &str) = ("www.example.com", "A");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_desired_is_named_and_mended() {
    let asking = Asking::start().await;
    let lab = &asking.lab;
    let ran = asking.run("headwater why www.example.com").await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.out.contains("mend:   headwater rrset set example.com www A VALUE"), "{ran:?}");
    // There is no such name.
    let set = "headwater rrset set example.com www A VALUE";
    let hop = asking.mended(WWW, ("desired", "there is no www.example.com", set), "192.0.2.1").await;
    assert!(hop["change"].is_null(), "{hop}");
    let seen = asking.why("WWW.Example.com.", "a").await;
    assert_eq!((&seen["domain"], &seen["name"], &seen["type"]), (&ZONE.into(), &"www".into(), &"A".into()));
    let hops: Vec<&str> =
        seen["hops"].as_array().unwrap().iter().map(|hop| hop["hop"].as_str().unwrap()).collect();
    assert_eq!(hops, ["domain", "desired", "deployment", "powerdns", "dnsdist", "delegation"]);
    assert_eq!(seen["hops"][1]["change"]["event"], "rrset.replaced");
    assert_eq!(seen["hops"][5]["state"], "unknown");
    let told = asking.carry_out("headwater why www.example.com A", "").await;
    assert!(told.contains("192.0.2.1") && !told.contains("mend:"), "{told}");
    let found = asking.carry_out("headwater rrset search --content 192.0.2.1 --json", "").await;
    assert!(found.contains("\"domain\":\"example.com\"") && found.contains("\"name\":\"www\""), "{found}");
    // Another type is there.
    let set = "headwater rrset set example.com www AAAA VALUE";
    let told = "www.example.com has no AAAA: it has A";
    asking.mended(("www.example.com", "AAAA"), ("desired", told, set), "2001:db8::1").await;
    // It was deleted: by whom, and what undoes that.
    let deleted = lab.delete(ZONE, "www", RrType::A).await.revision;
    let undo = format!("headwater domain undo example.com {deleted}");
    let hop = asking.mended(WWW, ("desired", "has no A: it has AAAA", &undo), "").await;
    assert_eq!(
        (&hop["change"]["event"], &hop["change"]["revision"]),
        (&"rrset.deleted".into(), &deleted.get().into())
    );
    assert_eq!(hop["change"]["actor"]["kind"], "system");
    // A wildcard covers nothing at or below a name that exists, be it for what is below it alone.
    lab.put(ZONE, "*.wild", RrType::A, &["192.0.2.2"]).await;
    asking.whole(("any.wild.example.com", "A")).await;
    lab.put(ZONE, "deep.ent.wild", RrType::TXT, &["\"x\""]).await;
    for owner in ["ent.wild", "beside.ent.wild"] {
        let (name, set) =
            (format!("{owner}.{ZONE}"), format!("headwater rrset set example.com {owner} A VALUE"));
        let told = "the wildcard *.wild.example.com does not cover";
        let hop = asking.mended((&name, "A"), ("desired", told, &set), "192.0.2.3").await;
        let detail = hop["detail"].as_str().unwrap();
        assert!(owner != "ent.wild" || detail.contains("deep.ent.wild.example.com TXT"), "{hop}");
        assert_eq!(hop["change"]["event"], "rrset.replaced");
    }
    // Others are asked for it.
    lab.put(ZONE, "host.sub", RrType::A, &["192.0.2.4"]).await;
    lab.put(ZONE, "sub", RrType::NS, &["ns.elsewhere.example."]).await;
    let cut = (
        "desired",
        "sub.example.com is delegated to ns.elsewhere.example.",
        "headwater rrset delete example.com sub NS",
    );
    asking.whole(("sub.example.com", "NS")).await;
    asking.mended(("host.sub.example.com", "A"), cut, "").await;
    // An alias is as it should be, and says where it leads.
    lab.put(ZONE, "alias", RrType::CNAME, &["www.example.com."]).await;
    asking.whole(("alias.example.com", "A")).await;
    asking.whole((ZONE, "SOA")).await;
    asking.whole((ZONE, "NS")).await;
    // The whole domain is gone.
    lab.domain(ZONE, DomainCommand::Delete).await;
    let restore = ("domain", "example.com was deleted", "headwater domain restore example.com");
    let hop = asking.mended(WWW, restore, "").await;
    assert_eq!(hop["change"]["event"], "domain.deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_keeps_a_deployment_back_is_named_and_mended() {
    let asking = Asking::start().await;
    let lab = &asking.lab;
    lab.put(ZONE, "www", RrType::A, &["192.0.2.1"]).await;
    asking.whole(WWW).await;
    let cluster = lab.clusters[0];
    let pauses = [
        (PauseScope::All, "headwater deployment resume --all"),
        (PauseScope::Target(cluster), "headwater deployment resume --target dns-1"),
        (PauseScope::Domain(domain(ZONE)), "headwater deployment resume --domain example.com"),
    ];
    for (n, (scope, command)) in pauses.into_iter().enumerate() {
        lab.admin(AdminCommand::Pause { scope, reason: "new disks".to_owned() }).await;
        // What is there already is as it should be.
        asking.whole(WWW).await;
        lab.put(ZONE, "www", RrType::A, &[&format!("192.0.2.{}", 10 + n)]).await;
        let hop = asking.mended(WWW, ("deployment", "paused: new disks", command), "").await;
        assert_eq!(
            (&hop["target"], &hop["change"]["event"]),
            (&"dns-1".into(), &"deployments.paused".into())
        );
    }
    lab.admin(AdminCommand::SetClusterEnabled { cluster, enabled: false }).await;
    asking.whole(WWW).await;
    lab.put(ZONE, "www", RrType::A, &["192.0.2.20"]).await;
    let hop = asking
        .mended(WWW, ("deployment", "the cluster is disabled", "headwater cluster enable dns-1"), "")
        .await;
    assert_eq!(hop["change"]["event"], "dns_cluster.disabled");
    // Proxied, with no edge that could serve it.
    let file = "hostname put example.com shop --origin http://127.0.0.1:9";
    asking.carry_out(&format!("headwater {file}"), "").await;
    asking
        .broken(("shop.example.com", "A"), "desired", "no cell of an edge is ready", "headwater edge")
        .await;
}
