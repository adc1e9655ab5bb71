//! Who speaks: a connection with or without an identity, and the edge behind it as the database has it now.

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::StatusCode;
use axum::http::request::Parts;
use headwater_edge_wire::ids::{CellNumber, EdgeId};
use headwater_edge_wire::seal::SealingPublicKey;
use headwater_events::actor::{Actor, ActorKind, Caller};
use headwater_events::envelope::Client;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Instant;
use uuid::Uuid;

use super::routes::Control;
use super::{EdgeError, answers, sql};
use crate::http::Problem;

/// Characters of what an agent calls itself that are kept.
const AGENT_MAX_CHARS: usize = 64;

/// The other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Where it is.
    pub address: SocketAddr,
    /// The serial number of the certificate that it proved to hold.
    pub serial: Option<Vec<u8>>,
}

impl Peer {
    /// What it is counted by: its address, of IPv6 the network that one host may have.
    pub(super) fn counted(&self) -> IpAddr {
        match self.address.ip().to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => {
                let network = u128::from(address) & (u128::MAX << 64);
                IpAddr::V6(Ipv6Addr::from(network))
            }
        }
    }

    pub(super) fn source(&self) -> String {
        self.address.ip().to_canonical().to_string()
    }

    /// As it stands in the erasable table beside the log.
    pub(super) fn client(&self, agent: &str) -> Client {
        let kept = |c: &char| !c.is_control();
        let agent = agent.chars().filter(kept).take(AGENT_MAX_CHARS).collect();
        Client { ip: self.source(), agent }
    }
}

/// An edge that may be answered now.
#[derive(Debug, Clone)]
pub(super) struct Live {
    pub(super) edge: EdgeId,
    pub(super) serial: Vec<u8>,
    pub(super) peer: Peer,
    pub(super) sealing_key: SealingPublicKey,
    pub(super) cells: u8,
    /// The cells that domains stand on.
    pub(super) placed: Vec<CellNumber>,
    /// Whether a clone was reported already.
    pub(super) is_cloned: bool,
}

impl Live {
    /// Asks the database whether the holder of an identity may be answered.
    pub(super) async fn of(pool: &PgPool, peer: &Peer) -> Result<Self, Problem> {
        let Some(serial) = &peer.serial else {
            let detail = "this needs the identity certificate of an edge: register first";
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "identity_needed", detail));
        };
        let unknown =
            || answers::refused("identity_unknown", "this identity is not known here: register again");
        let row = sqlx::query(sql::IDENTITY).bind(serial).fetch_optional(pool).await?.ok_or_else(unknown)?;
        if row.try_get::<bool, _>(1)? || !row.try_get::<bool, _>(2)? {
            let detail = "this identity was revoked or has ended: register with a new token";
            return Err(answers::refused("identity_revoked", detail));
        }
        match row.try_get::<Option<bool>, _>(4)? {
            None => return Err(unknown()),
            Some(false) => {
                return Err(answers::refused("edge_disabled", "the edge is disabled; it may go on serving"));
            }
            Some(true) => {}
        }
        Ok(Self::read(&row, serial.clone(), peer.clone())?)
    }

    fn read(row: &PgRow, serial: Vec<u8>, peer: Peer) -> Result<Self, EdgeError> {
        let small = |number: i16| u8::try_from(number).map_err(|_| EdgeError::Odd("number of cells"));
        let mut placed = Vec::new();
        for number in row.try_get::<Vec<i16>, _>(7)? {
            placed.push(CellNumber::try_from(small(number)?)?);
        }
        let sealing: String = row.try_get(3)?;
        Ok(Self {
            edge: EdgeId::from_uuid(row.try_get::<Uuid, _>(0)?),
            serial,
            peer,
            sealing_key: SealingPublicKey::try_from(sealing).map_err(|_| EdgeError::Odd("sealing key"))?,
            cells: small(row.try_get(5)?)?,
            placed,
            is_cloned: row.try_get(6)?,
        })
    }
}

/// Who stands in the log for what an edge did. It is only given commands that this program makes by itself.
pub(super) fn caller(edge: EdgeId) -> Caller {
    let actor = Actor { kind: ActorKind::Edge, id: edge.as_uuid(), token: None, on_behalf_of: None };
    Caller::new(actor, true)
}

pub(super) fn peer(parts: &Parts) -> Result<Peer, Problem> {
    let found = parts.extensions.get::<ConnectInfo<Peer>>();
    found.map(|ConnectInfo(peer)| peer.clone()).ok_or_else(|| Problem::unavailable("the connection is gone"))
}

impl FromRequestParts<Control> for Live {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, control: &Control) -> Result<Self, Problem> {
        let live = Self::of(&control.app.pool, &peer(parts)?).await?;
        control.requests.take(live.edge, Instant::now()).map_err(answers::too_often)?;
        Ok(live)
    }
}
