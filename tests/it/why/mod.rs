//! Why a name is answered as it is: each planted fault is the first broken hop, named with who did it and with the command
//! that mends it, and the command mends it.

mod faults;
mod listeners;
mod rights;

use std::path::PathBuf;

use headwater::command::{Aside, Command};
use headwater::secret::Secret;
use headwater::{http, operation, serve, token};
use headwater_events::admin::AdminCommand;
use headwater_events::ids::{TokenId, UserId};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::cli::script;
use crate::deploy::lab::{Does, Lab};
use crate::search::encoded;
use crate::support::{eventually, test_home};

pub const ZONE: &str = "example.com";

/// DNS clusters, a process of the control plane, and its API with an administrator.
pub struct Asking {
    pub lab: Lab,
    url: String,
    file: PathBuf,
    token: Secret,
}

impl Asking {
    /// With one cluster, and a domain that is deployed to it.
    pub async fn start() -> Self {
        let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let lab = Lab::doing(1, Does::Place).await;
        lab.create(ZONE).await;
        lab.current(ZONE).await;
        let (user, token) = (UserId::from_uuid(Uuid::now_v7()), TokenId::from_uuid(Uuid::now_v7()));
        let aside = Aside::Person { user, email: "admin@example.test".to_owned() };
        let create = AdminCommand::CreateUser { id: user, admin: true };
        lab.submit(Command::Admin { command: create, aside }).await.unwrap();
        let secret = token::generate();
        let hash = *token::hash(secret.expose()).unwrap().bytes();
        let create = AdminCommand::CreateToken {
            user,
            token,
            name: "test".to_owned(),
            expires_at: None,
            scopes: None,
            limits: Default::default(),
            managing: Default::default(),
        };
        let aside = Aside::TokenSecret { token, user, hash };
        lab.submit(Command::Admin { command: create, aside }).await.unwrap();
        let file = test_home().dir().join("token");
        std::fs::write(&file, secret.expose()).unwrap();
        let mut asking = Self { lab, url: String::new(), file, token: secret };
        asking.listen().await;
        asking
    }

    /// Serves the API of the process of now.
    pub async fn listen(&mut self) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.url = format!("http://{}", listener.local_addr().unwrap());
        let app = self.lab.app.clone();
        let routes = http::router::router(app.clone(), CancellationToken::new()).unwrap();
        tokio::spawn(serve::serve(listener, routes, app.stop.clone()));
        tokio::spawn(operation::runner::run(app));
    }

    /// What is explained of a name.
    pub async fn why(&self, name: &str, rrtype: &str) -> Value {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let path = format!("{}/api/explain?name={}&type={rrtype}", self.url, encoded(name));
        let answer = client.get(path).bearer_auth(self.token.expose()).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Awaits that a fault is named: its hop, a part of what is told, and the command; gives the hop.
    pub async fn broken(&self, (name, rrtype): (&str, &str), hop: &str, told: &str, command: &str) -> Value {
        let named = |seen: &Value| {
            let first = &seen["first_broken"];
            let text = |key: &str| first[key].as_str().unwrap_or_default();
            text("hop") == hop && text("detail").contains(told) && text("command").starts_with(command)
        };
        let what = format!("{name} {rrtype} is broken at {hop}, {told:?}, {command:?}");
        eventually(&what, || self.why(name, rrtype), named).await["first_broken"].clone()
    }

    /// Awaits that nothing is broken.
    pub async fn whole(&self, (name, rrtype): (&str, &str)) {
        let what = format!("{name} {rrtype} is whole");
        let whole = |seen: &Value| {
            seen["first_broken"].is_null()
                && seen["hops"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .all(|hop| hop["state"] == "ok" || hop["hop"] == "delegation")
        };
        let _seen = eventually(&what, || self.why(name, rrtype), whole).await;
    }

    /// Runs a command of the program as it was told, with a value in the place of `VALUE`; gives what it printed.
    pub async fn carry_out(&self, command: &str, value: &str) -> String {
        let ran = self.run(&command.replace("VALUE", value)).await;
        assert_eq!(ran.code, 0, "{command}: {} {}", ran.out, ran.err);
        ran.out
    }

    /// Runs a command of the program.
    pub async fn run(&self, command: &str) -> script::Ran {
        let words: Vec<&str> = command.split(' ').map(|word| word.trim_matches('\'')).collect();
        assert_eq!(words[0], "headwater", "{command}");
        let file = self.file.display().to_string();
        let variables = [("HEADWATER_URL", self.url.as_str()), ("HEADWATER_TOKEN_FILE", &file)];
        script::run(&words[1..], &variables).await
    }

    /// A fault that is there is named, and its command mends it; gives the hop.
    pub async fn mended(
        &self,
        asked: (&str, &str),
        (hop, told, command): (&str, &str, &str),
        value: &str,
    ) -> Value {
        let broken = self.broken(asked, hop, told, command).await;
        self.carry_out(broken["command"].as_str().unwrap(), value).await;
        self.whole(asked).await;
        broken
    }
}
