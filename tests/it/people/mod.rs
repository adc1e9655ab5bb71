//! People who log in: sessions, what an administrator does with users and tenants, what tokens are limited to, and what
//! is seen of all of them.

mod access;
mod crash;
mod erase;
mod limits;
mod roles;
mod sessions;
mod tokens;
mod users;

use std::net::SocketAddr;

use headwater::command::{Aside, Command, Meta};
use headwater::people::password::hash_now;
use headwater::secret::Secret;
use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use headwater_events::ids::UserId;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, TestApi};

pub const PASSWORD: &str = "correct horse battery";

/// A browser that is logged in.
#[derive(Clone)]
pub struct Browser {
    pub cookie: String,
    pub csrf: String,
}

impl Browser {
    /// What a login has given.
    pub fn of(answer: &Answer) -> Self {
        let set = answer.header("set-cookie");
        let cookie = set.split(';').next().unwrap().to_owned();
        Self { cookie, csrf: answer.json()["csrf_token"].as_str().unwrap().to_owned() }
    }

    /// Sends a request as a page of the panel does.
    pub async fn send(&self, api: &TestApi, method: Method, path: &str, body: Value) -> Answer {
        self.send_to(api, api.address, method, path, body).await
    }

    /// The same to one process of several.
    pub async fn send_to(
        &self,
        api: &TestApi,
        address: SocketAddr,
        method: Method,
        path: &str,
        body: Value,
    ) -> Answer {
        let mut request = api.request_at(address, method.clone(), path).header("cookie", &self.cookie);
        if !method.is_safe() {
            request = request.header("x-csrf-token", &self.csrf);
        }
        if !body.is_null() {
            request = request.json(&body);
        }
        Answer::of(request.send().await.unwrap()).await
    }
}

/// Gives a user a password, as the way back in does.
pub async fn set_password(api: &TestApi, user: UserId, password: &str) {
    let verifier = hash_now(&Secret::new(password.to_owned())).unwrap();
    let aside = Aside::Password { user, verifier, keep: None };
    let command = Command::Admin { command: AdminCommand::SetPassword { user }, aside };
    api.app.commit.submit(Caller::system(), command, Meta::internal()).await.unwrap();
}

/// Tries to log in at one process.
pub async fn login_at(api: &TestApi, address: SocketAddr, email: &str, password: &str) -> Answer {
    let body = json!({"email": email, "password": password});
    let request = api.request_at(address, Method::POST, "/api/auth/login").json(&body);
    Answer::of(request.send().await.unwrap()).await
}

/// Tries to log in.
pub async fn login(api: &TestApi, email: &str, password: &str) -> Answer {
    login_at(api, api.address, email, password).await
}

/// A user with a password, logged in, with a token too.
pub async fn person(api: &TestApi, email: &str) -> (UserId, Secret, Browser) {
    let (user, token) = api.user(email, false, &[]).await;
    set_password(api, user, PASSWORD).await;
    let browser = Browser::of(&login(api, email, PASSWORD).await.expect(200));
    (user, token, browser)
}
