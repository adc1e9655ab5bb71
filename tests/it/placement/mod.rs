//! From edges that are ready to what DNS answers for proxied names, on real PowerDNS and dnsdist. The agents are rows: what
//! they report is no event, so a test may report for them.

mod answers;
mod api;
mod order;

use std::net::IpAddr;

use headwater::command::Command;
use headwater::deploy::{Target, clusters, verify_zone};
use headwater_events::admin::AdminCommand;
use headwater_events::edge::{EdgeCommand, EdgeCreated, IdentityIssued};
use headwater_events::ids::{DomainId, EdgeId};
use headwater_events::time::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::deploy::lab::{Does, Lab};
use crate::sites::{host, unhost};
use crate::support::eventually;

pub const ZONE: &str = "edge.example.net";
const TARGET: &str = "shared.edge.example.net.";

/// A cluster, a domain with a proxied apex and a proxied name, and one that proxies nothing.
pub struct Placed {
    pub lab: Lab,
    pub site: DomainId,
    pub plain: DomainId,
}

impl Placed {
    pub async fn new() -> Self {
        let lab = Lab::doing(1, Does::Place).await;
        lab.admin(AdminCommand::CreateSharedPool).await;
        let (site, plain) = (lab.create("example.test").await, lab.create("plain.test").await);
        for owner in ["@", "www"] {
            lab.submit(host("example.test", owner, "1.1.1.1")).await.unwrap();
        }
        lab.current("example.test").await;
        lab.current("plain.test").await;
        Self { lab, site, plain }
    }

    /// With an edge that visitors are sent to.
    pub async fn with_edge() -> (Self, EdgeId) {
        let placed = Self::new().await;
        let edge = placed.edge("fra1", "9.9.9.1").await;
        placed.reports(edge, true).await;
        placed.answers("@", "A", "9.9.9.1").await;
        (placed, edge)
    }

    pub async fn run(&self, edge: EdgeId, command: EdgeCommand) {
        self.lab.admin(AdminCommand::Edge { edge, command }).await;
    }

    /// Makes an edge of one cell known that has an identity.
    pub async fn edge(&self, name: &str, address: &str) -> EdgeId {
        let edge = EdgeId::from_uuid(Uuid::now_v7());
        let (name, country, continent) = (name.to_owned(), "DE".to_owned(), "EU".to_owned());
        let labels = Default::default();
        let created = EdgeCreated { name, country, continent, cells: 1, labels, external_id: None };
        let address: IpAddr = address.parse().unwrap();
        self.run(edge, EdgeCommand::Create(created, vec![address])).await;
        let not_after = Timestamp::from_millis(4_000_000_000_000);
        let given = "insert into edge_identities (serial, edge_id, key, sealing_key, certificate, not_after) \
                     select uuid_send($1), $1, '\\xab', '', '', now() + interval '1 day'";
        self.execute(given, edge).await;
        let serial = edge.as_uuid().simple().to_string();
        let issued = IdentityIssued { serial, key: "ab".repeat(32), not_after };
        self.run(edge, EdgeCommand::RecordIdentity(issued)).await;
        edge
    }

    pub async fn execute(&self, text: &'static str, edge: EdgeId) {
        sqlx::query(text).bind(edge.as_uuid()).execute(&self.lab.app.pool).await.unwrap();
    }

    /// Its agent says how its cell is, and that it serves everything there is.
    pub async fn reports(&self, edge: EdgeId, answers: bool) {
        let body = json!({"cells": [{"cell": 0, "http_ready": answers, "https_ready": answers}]});
        let beat = "insert into edge.heartbeats (edge_id, at, fresh_until, serial, sequence, source, body, watch) \
                    values ($1, now(), now() + interval '1 hour', '\\x0b', 1, '127.0.0.1', $2, '{}') \
                    on conflict (edge_id) do update set fresh_until = excluded.fresh_until, body = excluded.body";
        let query = sqlx::query(beat).bind(edge.as_uuid()).bind(body);
        query.execute(&self.lab.app.pool).await.unwrap();
        self.acks(edge).await;
    }

    /// Its cell has taken in everything there is.
    pub async fn acks(&self, edge: EdgeId) {
        let ack = "insert into edge.acks (edge_id, cell, epoch, sequence) \
                   select $1, 0, edge_epoch, (select coalesce(max(position), 0) from events) from log_meta \
                   on conflict (edge_id, cell) do update set sequence = excluded.sequence, at = now()";
        self.execute(ack, edge).await;
    }

    /// It is not heard of any more.
    pub async fn falls_silent(&self, edge: EdgeId) {
        self.execute("update edge.heartbeats set fresh_until = now() where edge_id = $1", edge).await;
    }

    pub fn name(owner: &str) -> String {
        if owner == "@" { "example.test".to_owned() } else { format!("{owner}.example.test") }
    }

    pub async fn ask(&self, owner: &str, rrtype: &str) -> String {
        self.lab.dig(0, &Self::name(owner), rrtype)
    }

    /// Awaits that a name of the domain is answered with this.
    pub async fn answers(&self, owner: &str, rrtype: &str, with: &str) {
        let what = format!("{owner} {rrtype} is answered with {with}");
        let line = format!("answer {}. {rrtype} {with}", Self::name(owner));
        eventually(&what, || self.ask(owner, rrtype), |seen| seen.lines().any(|one| one == line)).await;
    }

    /// Awaits that a name of the domain is not answered at all.
    pub async fn is_gone(&self, owner: &str) {
        let what = format!("{owner} is gone");
        eventually(&what, || self.ask(owner, "CNAME"), |seen| seen == "NXDOMAIN").await;
    }

    /// How often that changed.
    pub async fn changes(&self) -> i64 {
        let query =
            sqlx::query_scalar("select count(*) from events where type = 'platform.endpoints_changed'");
        query.fetch_one(&self.lab.app.pool).await.unwrap()
    }

    /// What is wrong with a zone: nothing.
    pub async fn verify(&self, domain: DomainId) {
        let cluster = clusters(&self.lab.app.pool).await.unwrap().remove(0);
        let target = Target::open(cluster).unwrap();
        assert_eq!(verify_zone(&self.lab.app.pool, &target, domain).await.unwrap(), []);
    }

    /// The names that edges serve of the domain.
    pub async fn served(&self) -> Vec<String> {
        let query = "select a.bytes from edge.domains d join edge.artifacts a on a.checksum = d.checksum \
                     where d.domain_id = $1 and not d.removed";
        let query = sqlx::query_scalar::<_, Vec<u8>>(query).bind(self.site.as_uuid());
        let Some(bytes) = query.fetch_optional(&self.lab.app.pool).await.unwrap() else { return Vec::new() };
        let artifact: Value = serde_json::from_slice(&bytes).unwrap();
        let names = artifact["hostnames"].as_array().unwrap().iter();
        names.map(|host| host["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// A proxied name of the domain, by its origin.
fn proxy(owner: &str) -> Command {
    host("example.test", owner, "1.1.1.1")
}

fn unproxy(owner: &str) -> Command {
    unhost("example.test", owner)
}
