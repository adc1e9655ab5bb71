//! An API with its control listener, edges in it, and domains that edges are to hold, written and signed by hand.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use headwater::command::{Command, Meta};
use headwater::edge::{self, Signer};
use headwater::vault;
use headwater_edge_wire::artifact::{Artifact, ArtifactBudget};
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::ids::EdgeId;
use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::postgres::PgPool;
use tempfile::TempDir;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use uuid::Uuid;

use super::agent::Agent;
use crate::support::TestApi;

/// Crash points are of the whole process: who sets one off is alone with it.
static CRASHES: RwLock<()> = RwLock::const_new(());

pub struct Lab {
    pub api: TestApi,
    pub control: SocketAddr,
    pub authority: Vec<u8>,
    pub key_file: std::path::PathBuf,
    polls: edge::Polls,
    _dir: TempDir,
    _quiet: Option<RwLockReadGuard<'static, ()>>,
}

const GENEROUS: &str = "registrations_per_hour = 1000000\nrequests_per_minute = 1000000\n";

impl Lab {
    pub async fn new() -> Self {
        Self::with(GENEROUS).await
    }

    pub async fn with(edge_control: &str) -> Self {
        let quiet = CRASHES.read().await;
        Self { _quiet: Some(quiet), ..Self::open(edge_control).await }
    }

    /// One whose process may crash at its points.
    pub async fn crashing() -> (Self, RwLockWriteGuard<'static, ()>) {
        let alone = CRASHES.write().await;
        (Self::open(GENEROUS).await, alone)
    }

    async fn open(edge_control: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key_file = dir.path().join("secret-key");
        assert!(vault::make(&key_file).unwrap());
        let config = format!("[secrets]\nkey_file = {key_file:?}\n[edge_control]\n{edge_control}");
        let api = TestApi::start(&config).await;
        api.app
            .commit
            .submit(Caller::system(), Command::admin(AdminCommand::CreateSharedPool), Meta::internal())
            .await
            .unwrap();
        let bound = edge::bind(api.app.clone(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let (control, polls) = (bound.address, bound.polls());
        tokio::spawn(edge::run(bound));
        let authority = edge::authority_certificate(&api.app).await.unwrap();
        Self { api, control, authority, key_file, polls, _dir: dir, _quiet: None }
    }

    pub fn pool(&self) -> &PgPool {
        &self.api.app.pool
    }

    /// Makes an edge known; its id and token.
    pub async fn edge(&self, name: &str) -> (EdgeId, String) {
        let body = json!({"name": name, "country": "DE", "continent": "EU", "cells": 2});
        let made = self.api.call(Method::POST, "/api/edges", body).await.expect(201).json();
        let id = Uuid::from_str(made["id"].as_str().unwrap()).unwrap();
        (EdgeId::from_uuid(id), made["bootstrap_token"].as_str().unwrap().to_owned())
    }

    /// Awaits that a long poll waits for a change.
    pub async fn polled(&self) {
        let mut polls = self.polls.subscribe();
        let waits = polls.wait_for(|waiting| *waiting > 0);
        let waits = tokio::time::timeout(Duration::from_secs(30), waits).await;
        waits.expect("no long poll waits").unwrap();
    }

    pub fn agent(&self, edge: EdgeId) -> Agent {
        Agent::new(edge, self.control, self.authority.clone())
    }

    /// An edge whose agent has registered.
    pub async fn enrolled(&self, name: &str) -> Agent {
        let (edge, token) = self.edge(name).await;
        let mut agent = self.agent(edge);
        agent.enrol(&token).await;
        agent
    }

    pub async fn act(&self, edge: EdgeId, verb: &str) -> Value {
        let path = format!("/api/edges/{edge}/{verb}");
        self.api.call(Method::POST, &path, Value::Null).await.expect(200).json()
    }

    pub async fn show(&self, edge: EdgeId) -> Value {
        self.api.get(&format!("/api/edges/{edge}")).await.expect(200).json()
    }

    /// The types of the events of an edge.
    pub async fn events(&self, edge: EdgeId) -> Vec<String> {
        let query = sqlx::query_scalar("select type from events where stream_id = $1 order by position");
        query.bind(edge.as_uuid()).fetch_all(self.pool()).await.unwrap()
    }

    pub async fn signer(&self) -> Signer {
        edge::signer(&self.api.app).await.unwrap()
    }

    /// Has edges hold a domain from this position on.
    pub async fn put(&self, signer: &Signer, n: u32, sequence: i64) -> Uuid {
        let (id, bytes) = artifact(n, sequence);
        let checksum = Checksum::of(&bytes);
        let signature = signer.sign_artifact(&checksum).unwrap();
        sqlx::query("insert into edge.artifacts (checksum, bytes) values ($1, $2) on conflict do nothing")
            .bind(checksum.as_bytes().as_slice())
            .bind(&bytes)
            .execute(self.pool())
            .await
            .unwrap();
        sqlx::query(
            "insert into edge.domains (domain_id, name, sequence, revision, checksum, size, key_id, signature, removed) \
             values ($1, $2, $3, $3, $4, $5, $6, $7, false) on conflict (domain_id) do update set sequence = $3, \
             revision = $3, checksum = $4, size = $5, key_id = $6, signature = $7, removed = false",
        )
        .bind(id)
        .bind(name(n))
        .bind(sequence)
        .bind(checksum.as_bytes().as_slice())
        .bind(i32::try_from(bytes.len()).unwrap())
        .bind(signature.key.as_bytes().as_slice())
        .bind(signature.value.as_bytes().as_slice())
        .execute(self.pool())
        .await
        .unwrap();
        id
    }

    /// Has edges let a domain go.
    pub async fn remove(&self, n: u32, sequence: i64) {
        sqlx::query("update edge.domains set sequence = $2, revision = $2, removed = true, checksum = null where domain_id = $1")
            .bind(domain(n))
            .bind(sequence)
            .execute(self.pool())
            .await
            .unwrap();
    }

    /// Says how far the projection has followed the log.
    pub async fn cursor(&self, position: i64) {
        sqlx::query(
            "insert into projection_cursors (name, version, position) values ('edge', 1, $1) \
             on conflict (name) do update set position = $1",
        )
        .bind(position)
        .execute(self.pool())
        .await
        .unwrap();
    }
}

pub fn name(n: u32) -> String {
    format!("d{n}.example.com")
}

pub fn domain(n: u32) -> Uuid {
    Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + u128::from(n))
}

fn artifact(n: u32, revision: i64) -> (Uuid, Vec<u8>) {
    let id = domain(n);
    let text = json!({
        "schema": 1, "agent": {"min": 1, "max": 1}, "domain": name(n), "id": id, "revision": revision,
        "hostnames": [{"name": name(n), "origin": {
            "scheme": "http", "host": "origin.example.org", "port": 80, "host_header": name(n), "verify_tls": true,
            "connect_timeout_ms": 3000, "response_timeout_ms": 30000, "retries": 1, "websocket": false}}],
        "cache": {"enabled": true, "edge_ttl_seconds": 3600, "browser_ttl_seconds": 300,
            "respect_origin_headers": true, "maximum_object_bytes": 104_857_600, "stale_if_error_seconds": 60,
            "stale_while_revalidate_seconds": 30, "epoch": 0},
        "security": {"profile": "standard"}, "certificates": [],
    });
    let artifact: Artifact = serde_json::from_value(text).unwrap();
    let (bytes, _) = artifact.checked().unwrap().bytes(ArtifactBudget::default()).unwrap();
    (id, bytes)
}
