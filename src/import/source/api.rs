//! The HTTP API of a PowerDNS. A few requests at once, each bounded in time and size; what fails in passing is asked
//! again. Its key goes into a header and nowhere else.

use super::super::room::Room;
use super::{Listed, Listing, Place, SourceError, keys, metadata, of_kind, tsig_keys};
use crate::secret::Secret;
use futures_util::StreamExt;
use headwater_events::dns::DomainName;
use headwater_events::migration::{
    Data, IMPORT_ZONES_MAX_COUNT, NotCarried, SourceComment, SourceRecord, SourceZone,
};
use headwater_events::zonetext::RECORDS_MAX_COUNT;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Requests at once.
const REQUESTS_MAX_COUNT: usize = 8;
/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Octets of an answer, at most.
const ANSWER_MAX_BYTES: usize = 256 << 20;
/// How often something is asked for.
const TRIES_MAX_TIMES: u32 = 3;
/// The pause before it is asked for again; it doubles.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// The API.
pub struct Api {
    client: Client,
    base: Url,
    turns: Semaphore,
}

#[derive(Deserialize)]
struct Zone {
    id: String,
    name: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    account: Option<String>,
    #[serde(default)]
    masters: Vec<String>,
    #[serde(default)]
    dnssec: bool,
    #[serde(default)]
    serial: Option<u64>,
    #[serde(default)]
    edited_serial: Option<u64>,
}

#[derive(Deserialize)]
struct Whole {
    #[serde(default)]
    rrsets: Vec<Rrset>,
}

#[derive(Deserialize)]
struct Rrset {
    name: String,
    r#type: String,
    #[serde(default)]
    ttl: Option<i64>,
    #[serde(default)]
    records: Vec<Record>,
    #[serde(default)]
    comments: Vec<Comment>,
}

#[derive(Deserialize)]
struct Record {
    content: String,
    #[serde(default)]
    disabled: bool,
}

#[derive(Deserialize)]
struct Comment {
    content: String,
}

#[derive(Deserialize)]
struct Metadata {
    kind: String,
    #[serde(default)]
    metadata: Vec<String>,
}

#[derive(Deserialize)]
struct TsigKey {
    name: String,
}

/// What one request came to.
enum Failed {
    /// It may be another time; what it is where it never is.
    Passing(SourceError),
    /// It will be the same.
    Lasting(SourceError),
}

impl Api {
    pub(super) fn open(url: &str, key_file: &str, server: &str) -> Result<Self, SourceError> {
        let unusable = |why: String| SourceError::Unusable(why);
        let key = Secret::read(Path::new(key_file)).map_err(|error| unusable(format!("{error:#}")))?;
        let mut value = HeaderValue::from_str(key.expose())
            .map_err(|_| unusable(format!("{key_file} holds no key that a header can carry")))?;
        value.set_sensitive(true);
        let headers = HeaderMap::from_iter([
            (HeaderName::from_static("x-api-key"), value),
            (ACCEPT, HeaderValue::from_static("application/json")),
        ]);
        let mut base = Url::parse(url).map_err(|error| unusable(format!("{url} is no URL: {error}")))?;
        base.path_segments_mut()
            .map_err(|()| unusable(format!("{url} is no URL of an API")))?
            .pop_if_empty()
            .extend(["api", "v1", "servers", server]);
        // The provider of the whole process; it is there already when somebody was faster.
        let _already_there = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .connect_timeout(CONNECT_MAX)
            .timeout(ANSWER_MAX)
            .default_headers(headers)
            .build()
            .map_err(|error| unusable(format!("there is no client: {error}")))?;
        Ok(Self { client, base, turns: Semaphore::new(REQUESTS_MAX_COUNT) })
    }

    pub(super) async fn list(&self) -> Result<Listing, SourceError> {
        let zones: Vec<Zone> = self.get(&["zones"]).await?;
        if zones.len() > IMPORT_ZONES_MAX_COUNT {
            return Err(SourceError::Unusable(format!("it has more than {IMPORT_ZONES_MAX_COUNT} zones")));
        }
        let notes = match self.get::<Vec<TsigKey>>(&["tsigkeys"]).await {
            Ok(found) => tsig_keys(&found.into_iter().map(|key| key.name).collect::<Vec<_>>()).collect(),
            // Some front ends have none of it.
            Err(SourceError::Zone(why)) => {
                vec![NotCarried::new("tsig_key", None, 1, format!("they could not be read: {why}"))]
            }
            Err(other) => return Err(other),
        };
        Ok(Listing { zones: zones.into_iter().map(listed).collect(), notes })
    }

    pub(super) async fn load(
        &self,
        one: &Listed,
        zone: &mut SourceZone,
        room: &mut Room,
    ) -> Result<(), SourceError> {
        let Place::Name(id) = &one.place else { return Ok(()) };
        let body = self.body(&["zones", id], room).await?;
        let whole: Whole = read(&body)?;
        drop(body);
        for rrset in whole.rrsets {
            let Rrset { name, r#type: rrtype, ttl, records, comments } = rrset;
            for Record { content, disabled } in records {
                zone.records.push(SourceRecord {
                    owner: Data::Text(name.clone()),
                    rrtype: Some(rrtype.clone()),
                    ttl,
                    data: Data::Text(content),
                    disabled,
                });
            }
            let told = |one: Comment| SourceComment {
                owner: name.clone(),
                rrtype: rrtype.clone(),
                text: one.content,
            };
            zone.comments.extend(comments.into_iter().map(told));
            if zone.records.len() > RECORDS_MAX_COUNT {
                return Ok(());
            }
        }
        zone.beside.extend(self.beside(id, one.signed).await?);
        Ok(())
    }

    /// Metadata and keys; of both, no values.
    async fn beside(&self, id: &str, signed: bool) -> Result<Vec<NotCarried>, SourceError> {
        let mut beside = Vec::new();
        match self.get::<Vec<Metadata>>(&["zones", id, "metadata"]).await {
            Ok(found) => beside.extend(
                // The API shows settings of the zone as metadata too; those that say nothing are not there.
                found
                    .iter()
                    .filter(|one| one.metadata.iter().any(|value| !value.is_empty()))
                    .map(|one| metadata(&one.kind, one.metadata.len())),
            ),
            Err(SourceError::Zone(why)) => {
                beside.push(NotCarried::new("metadata", None, 1, format!("it could not be read: {why}")));
            }
            Err(other) => return Err(other),
        }
        if signed {
            let found: Vec<serde_json::Value> = self.get(&["zones", id, "cryptokeys"]).await?;
            beside.extend(keys(found.len()));
        }
        Ok(beside)
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, SourceError> {
        read(&self.body(path, &mut Room::default()).await?)
    }

    async fn body(&self, path: &[&str], room: &mut Room) -> Result<Vec<u8>, SourceError> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(path);
        }
        let mut tries = 0;
        loop {
            let failed = {
                let _turn = self.turns.acquire().await;
                match self.once(url.clone(), room).await {
                    Ok(body) => return Ok(body),
                    Err(failed) => failed,
                }
            };
            tries += 1;
            match failed {
                Failed::Lasting(error) => return Err(error),
                Failed::Passing(error) if tries >= TRIES_MAX_TIMES => return Err(error),
                Failed::Passing(_) => tokio::time::sleep(RETRY_PAUSE * 2_u32.pow(tries - 1)).await,
            }
        }
    }

    async fn once(&self, url: Url, room: &mut Room) -> Result<Vec<u8>, Failed> {
        let passing = |error: reqwest::Error| Failed::Passing(SourceError::Away(shown(error)));
        let answer = self.client.get(url).send().await.map_err(passing)?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let why = "the API of the source refuses the key";
                return Err(Failed::Lasting(SourceError::Unusable(why.to_owned())));
            }
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                // Of this zone alone, as far as anybody can tell: PowerDNS says so where it cannot read a record of it.
                let why = format!("the API of the source answers {status}");
                return Err(Failed::Passing(SourceError::Zone(why)));
            }
            status => {
                let why = format!("the API of the source answers {status}");
                return Err(Failed::Lasting(SourceError::Zone(why)));
            }
        }
        let mut body = Vec::new();
        let mut chunks = answer.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            body.extend_from_slice(&chunk.map_err(passing)?);
            room.bytes(body.len() as u64).await;
            if body.len() > ANSWER_MAX_BYTES {
                let why = format!("the API of the source answers with more than {ANSWER_MAX_BYTES} octets");
                return Err(Failed::Lasting(SourceError::Zone(why)));
            }
        }
        Ok(body)
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, SourceError> {
    let why = |error| SourceError::Zone(format!("the source does not answer as PowerDNS does: {error}"));
    serde_json::from_slice(body).map_err(why)
}

/// Without the URL, which says nothing that whoever asked does not know, and with every cause.
fn shown(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut told = format!("the API of the source does not answer: {error}");
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        told.push_str(&format!(": {next}"));
        cause = next.source();
    }
    told
}

fn listed(zone: Zone) -> Listed {
    let number = |serial: Option<u64>| serial.map_or_else(String::new, |serial| serial.to_string());
    let marker = format!("{} {}", number(zone.serial), number(zone.edited_serial));
    Listed {
        name: DomainName::parse(&zone.name).map_err(|fault| (fault.code.as_str(), fault.detail)),
        beside: of_kind(&zone.kind, &zone.masters.join(", ")).into_iter().collect(),
        called: zone.name,
        account: zone.account.unwrap_or_default(),
        kind: zone.kind,
        marker: Some(marker),
        signed: zone.dnssec,
        place: Place::Name(zone.id),
    }
}
