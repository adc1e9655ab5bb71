//! What a path names. A domain is named by its name, in any spelling; what cannot be a name does not exist.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use headwater_events::dns::{DnsFault, DomainName, OwnerName, RrType};
use headwater_events::ids::{PurgeId, UserId};
use headwater_events::reject::Fault;
use serde::Deserialize;
use std::str::FromStr;
use uuid::Uuid;

use super::Problem;

/// `{d}`.
#[derive(Debug, Clone)]
pub struct DomainPath(pub DomainName);

/// `{d}` and what else the path names.
#[derive(Debug, Deserialize)]
struct RawDomain {
    d: String,
}

#[derive(Debug, Deserialize)]
struct RawRrset {
    d: String,
    name: String,
    r#type: String,
}

#[derive(Debug, Deserialize)]
struct RawHostname {
    d: String,
    name: String,
}

#[derive(Debug, Deserialize)]
struct RawPurge {
    d: String,
    id: String,
}

#[derive(Debug, Deserialize)]
struct RawMember {
    d: String,
    user: String,
}

#[derive(Debug, Deserialize)]
struct RawRevision {
    d: String,
    n: String,
}

/// `{d}/rrsets/{name}/{type}`; owner and type are read against the domain.
#[derive(Debug, Clone)]
pub struct RrsetPath {
    /// The domain.
    pub domain: DomainName,
    name: String,
    rrtype: String,
}

/// `{d}/hostnames/{name}`; the name is read against the domain.
#[derive(Debug, Clone)]
pub struct HostnamePath {
    /// The domain.
    pub domain: DomainName,
    name: String,
}

impl HostnamePath {
    /// The name, relative to the domain.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(&self) -> Result<OwnerName, Vec<Fault>> {
        OwnerName::parse(&self.name, &self.domain)
            .map_err(|fault| vec![Fault::at("", fault.code.as_str(), fault.detail)])
    }
}

/// `{d}/purges/{id}`.
#[derive(Debug, Clone)]
pub struct PurgePath {
    /// The domain.
    pub domain: DomainName,
    /// Which purge.
    pub id: PurgeId,
}

/// `{d}/members/{user}`.
#[derive(Debug, Clone)]
pub struct MemberPath {
    /// The domain.
    pub domain: DomainName,
    /// Who.
    pub user: UserId,
}

/// `{d}/revisions/{n}`.
#[derive(Debug, Clone)]
pub struct RevisionPath {
    /// The domain.
    pub domain: DomainName,
    /// Which revision.
    pub revision: i64,
}

/// `{id}`, the id of some kind of thing.
#[derive(Debug, Clone, Copy)]
pub struct IdPath<T>(pub T);

/// `{id}/members/{user}`.
#[derive(Debug, Clone, Copy)]
pub struct PairPath<A, B>(pub A, pub B);

impl RrsetPath {
    /// Owner and type, each by itself.
    pub fn parts(&self) -> (Result<OwnerName, DnsFault>, Result<RrType, DnsFault>) {
        (OwnerName::parse(&self.name, &self.domain), RrType::parse(&self.rrtype))
    }

    /// Owner and type of what is there, or is not.
    ///
    /// # Errors
    /// Every fault of either.
    pub fn read(&self) -> Result<(OwnerName, RrType), Vec<Fault>> {
        let fault = |fault: DnsFault| Fault::at("", fault.code.as_str(), fault.detail);
        match self.parts() {
            (Ok(owner), Ok(rrtype)) => Ok((owner, rrtype)),
            (owner, rrtype) => Err(owner.err().into_iter().chain(rrtype.err()).map(fault).collect()),
        }
    }
}

fn domain(text: &str) -> Result<DomainName, Problem> {
    DomainName::parse(text).map_err(|_| Problem::not_found("a domain of this name"))
}

async fn raw<T, S>(parts: &mut Parts, state: &S) -> Result<T, Problem>
where
    T: serde::de::DeserializeOwned + Send,
    S: Send + Sync,
{
    let read = Path::<T>::from_request_parts(parts, state).await;
    read.map(|Path(raw)| raw).map_err(|_| Problem::malformed("the path is not percent-encoded UTF-8"))
}

impl<S: Send + Sync> FromRequestParts<S> for DomainPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let RawDomain { d } = raw(parts, state).await?;
        Ok(Self(domain(&d)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RrsetPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let RawRrset { d, name, r#type } = raw(parts, state).await?;
        Ok(Self { domain: domain(&d)?, name, rrtype: r#type })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for HostnamePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let RawHostname { d, name } = raw(parts, state).await?;
        Ok(Self { domain: domain(&d)?, name })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PurgePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let RawPurge { d, id: text } = raw(parts, state).await?;
        Ok(Self { domain: domain(&d)?, id: id(&text)? })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for MemberPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let RawMember { d, user } = raw(parts, state).await?;
        Ok(Self { domain: domain(&d)?, user: id(&user)? })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for RevisionPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let RawRevision { d, n } = raw(parts, state).await?;
        let revision = n.parse().map_err(|_| Problem::not_found("a revision of this number"))?;
        Ok(Self { domain: domain(&d)?, revision })
    }
}

impl<S: Send + Sync, T: FromStr> FromRequestParts<S> for IdPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let text: String = raw(parts, state).await?;
        Ok(Self(id(&text)?))
    }
}

impl<S, A, B> FromRequestParts<S> for PairPath<A, B>
where
    S: Send + Sync,
    A: FromStr,
    B: FromStr,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let (first, second): (String, String) = raw(parts, state).await?;
        Ok(Self(id(&first)?, id(&second)?))
    }
}

/// What is no id names nothing.
fn id<T: FromStr>(text: &str) -> Result<T, Problem> {
    // Braces and other spellings of a UUID are not ours.
    let plain = Uuid::parse_str(text).is_ok_and(|id| id.to_string().eq_ignore_ascii_case(text));
    text.parse().ok().filter(|_| plain).ok_or_else(|| Problem::not_found("anything of this id"))
}
