//! Identifiers. Each kind of thing has its own type, so that a tenant's id can
//! never be passed where a domain's is meant. All are UUIDs (version 7 when we
//! make them), shown in hyphenated lower case.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

macro_rules! uuid_id {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID that is known to name a thing of this kind.
            pub const fn from_uuid(id: Uuid) -> Self { Self(id) }
            /// The bare UUID, for the database and the wire.
            pub const fn as_uuid(self) -> Uuid { self.0 }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> { Uuid::parse_str(text).map(Self) }
        }
    )+};
}

uuid_id! {
    /// A domain's stream.
    DomainId,
    /// A tenant's stream.
    TenantId,
    /// A user's stream.
    UserId,
    /// An API token; its facts stand in its user's stream.
    TokenId,
    /// A DNS cluster's stream.
    ClusterId,
    /// An edge host's stream.
    EdgeId,
    /// A pool's stream.
    PoolId,
    /// The durable receipt of accepted work.
    OperationId,
    /// One event.
    EventId,
    /// One request, as in `X-Request-Id`.
    RequestId,
    /// One incarnation of the log; new after every restore that lost events.
    LogId,
    /// One submitted batch of commands.
    BatchId,
    /// A purge of what edges keep.
    PurgeId,
    /// A certificate of a domain.
    CertificateId,
    /// A webhook's stream.
    WebhookId,
}

/// Digits of a log's id that do not stand in a stream id: all but the last eight, which are random.
const SHORT_SKIPPED_DIGITS: usize = 24;

impl LogId {
    /// The eight hex digits that stand before the position in a stream id.
    pub fn short(self) -> String {
        self.as_uuid().simple().to_string().chars().skip(SHORT_SKIPPED_DIGITS).collect()
    }
}

impl PoolId {
    /// The pool that every cell belongs to: it has one id everywhere, so that it cannot be made twice.
    pub const SHARED: Self = Self(Uuid::from_u128(2));
}

macro_rules! counter {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(i64);

        impl $name {
            /// Before the first one.
            pub const ZERO: Self = Self(0);
            /// Wraps a number read from the log.
            pub const fn new(n: i64) -> Self { Self(n) }
            /// The bare number.
            pub const fn get(self) -> i64 { self.0 }
            /// The one that follows.
            pub const fn next(self) -> Self { Self(self.0 + 1) }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }
    )+};
}

counter! {
    /// An event's place in the whole log: dense, from 1, in commit order.
    Position,
    /// The number of one committed mutation of a stream: +1 per mutation.
    Revision,
    /// How often what a user may do has changed.
    RightsNumber,
}

/// What kind of aggregate a stream belongs to. The numbers are stored: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamKind {
    /// A domain.
    Domain,
    /// A tenant.
    Tenant,
    /// A user and its tokens.
    User,
    /// A DNS cluster and what was deployed to it.
    DnsCluster,
    /// Imperative work that has no stream of its own.
    Operation,
    /// The platform itself; there is one.
    Platform,
    /// An edge host and its cells.
    Edge,
    /// A service class of cells.
    Pool,
    /// A receiver of events.
    Webhook,
}

impl StreamKind {
    const ALL: [(Self, i16, &'static str); 9] = [
        (Self::Domain, 1, "domain"),
        (Self::Tenant, 2, "tenant"),
        (Self::User, 3, "user"),
        (Self::DnsCluster, 4, "dns_cluster"),
        (Self::Operation, 5, "operation"),
        (Self::Platform, 6, "platform"),
        (Self::Edge, 7, "edge"),
        (Self::Pool, 8, "pool"),
        (Self::Webhook, 9, "webhook"),
    ];

    /// The stored number.
    pub fn code(self) -> i16 {
        Self::ALL.iter().find(|row| row.0 == self).map_or(0, |row| row.1)
    }

    /// The kind with this stored number.
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.iter().find(|row| row.1 == code).map(|row| row.0)
    }

    /// The name in an envelope.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|row| row.0 == self).map_or("", |row| row.2)
    }
}

/// One stream: the events of one aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StreamRef {
    /// What it is.
    pub kind: StreamKind,
    /// Which one it is.
    pub id: Uuid,
}

impl StreamRef {
    /// The platform's only stream.
    pub const PLATFORM: Self = Self { kind: StreamKind::Platform, id: Uuid::from_u128(1) };

    /// A domain's stream.
    pub fn domain(id: DomainId) -> Self {
        Self { kind: StreamKind::Domain, id: id.as_uuid() }
    }

    /// A tenant's stream.
    pub fn tenant(id: TenantId) -> Self {
        Self { kind: StreamKind::Tenant, id: id.as_uuid() }
    }

    /// A user's stream.
    pub fn user(id: UserId) -> Self {
        Self { kind: StreamKind::User, id: id.as_uuid() }
    }

    /// A DNS cluster's stream.
    pub fn cluster(id: ClusterId) -> Self {
        Self { kind: StreamKind::DnsCluster, id: id.as_uuid() }
    }

    /// An edge's stream.
    pub fn edge(id: EdgeId) -> Self {
        Self { kind: StreamKind::Edge, id: id.as_uuid() }
    }

    /// A pool's stream.
    pub fn pool(id: PoolId) -> Self {
        Self { kind: StreamKind::Pool, id: id.as_uuid() }
    }

    /// A webhook's stream.
    pub fn webhook(id: WebhookId) -> Self {
        Self { kind: StreamKind::Webhook, id: id.as_uuid() }
    }

    /// An operation's stream.
    pub fn operation(id: OperationId) -> Self {
        Self { kind: StreamKind::Operation, id: id.as_uuid() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_kinds_survive_their_code() {
        for (kind, code, name) in StreamKind::ALL {
            assert_eq!(StreamKind::from_code(code), Some(kind));
            assert_eq!(kind.code(), code);
            assert_eq!(serde_json::to_value(kind).unwrap(), name);
        }
        assert_eq!(StreamKind::from_code(0), None);
    }
}
