//! Where zones come from: a list of them, and one after the other whole.

mod api;
mod archive;
mod axfr;
mod postgres;
mod tsig;

use super::room::Room;
use headwater_events::dns::DomainName;
use headwater_events::migration::{
    Carried, ImportRequested, ImportSource, NotCarried, Refused, SourceZone, carry,
};
use headwater_events::zonetext::RECORDS_MAX_COUNT;
use std::path::PathBuf;

/// The statements that are sent to the database of a PowerDNS.
pub use postgres::STATEMENTS as PDNS_STATEMENTS;

/// Why a source gives nothing.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be used as it was asked for, however often it is tried.
    #[error("{0}")]
    Unusable(String),
    /// It does not answer now.
    #[error("{0}")]
    Away(String),
    /// It does not give this zone; others it may.
    #[error("{0}")]
    Zone(String),
}

/// Where a zone is found at its source.
#[derive(Debug, Clone)]
enum Place {
    /// The row of a database.
    Row {
        /// Its id.
        id: i32,
        /// Whether there are comments.
        comments: bool,
    },
    /// A file.
    File(PathBuf),
    /// By its name, as the source spells it.
    Name(String),
}

/// A zone of the list.
#[derive(Debug, Clone)]
pub struct Listed {
    /// As the source calls it.
    pub called: String,
    /// Its name; or why it has none, as a code and for people.
    pub name: Result<DomainName, (&'static str, String)>,
    /// Whose it is there.
    pub account: String,
    /// Native, Master, Slave, …
    pub kind: String,
    /// Something that changes when the zone does, where the source has it.
    pub marker: Option<String>,
    /// What it keeps beside its records.
    pub beside: Vec<NotCarried>,
    /// Whether it is signed there.
    pub signed: bool,
    place: Place,
}

/// Every zone of a source.
#[derive(Debug, Default)]
pub struct Listing {
    /// They, by name.
    pub zones: Vec<Listed>,
    /// What belongs to no zone and is not carried.
    pub notes: Vec<NotCarried>,
}

/// A source that is ready to be read.
pub enum Source {
    /// A directory.
    Archive(archive::Archive),
    /// The database of a PowerDNS.
    Postgres(postgres::Database),
    /// The API of a PowerDNS.
    Api(api::Api),
    /// A primary.
    Axfr(Box<axfr::Primary>),
}

impl Source {
    /// Reads what is needed to reach it.
    ///
    /// # Errors
    /// When that cannot be used.
    pub fn open(source: &ImportSource) -> Result<Self, SourceError> {
        Ok(match source {
            ImportSource::Archive { path } => Self::Archive(archive::Archive::open(path)?),
            ImportSource::PdnsPostgres { database_url_file } => {
                Self::Postgres(postgres::Database::open(database_url_file)?)
            }
            ImportSource::PdnsApi { url, api_key_file, server } => {
                Self::Api(api::Api::open(url, api_key_file, server)?)
            }
            ImportSource::Axfr { primary, zones, tsig } => {
                Self::Axfr(Box::new(axfr::Primary::open(*primary, zones, tsig.as_ref())?))
            }
        })
    }

    /// Every zone that is wanted, by name; `marked`: each with what shows whether it changed.
    ///
    /// # Errors
    /// When the source does not answer, or gives what cannot be read.
    pub async fn list(&self, wanted: &ImportRequested, marked: bool) -> Result<Listing, SourceError> {
        let mut listing = match self {
            Self::Archive(archive) => archive.list().await?,
            Self::Postgres(database) => database.list(marked).await?,
            Self::Api(api) => api.list().await?,
            Self::Axfr(primary) => primary.list(marked).await?,
        };
        let is_wanted = |one: &Listed| match &one.name {
            Ok(name) => wanted.wants(name),
            // What has no name is told where everything is wanted.
            Err(_) => wanted.zones.is_none(),
        };
        listing.zones.retain(is_wanted);
        let key = |one: &Listed| one.name.as_ref().map_or_else(|_| one.called.clone(), ToString::to_string);
        listing.zones.sort_by_cached_key(|one| (one.name.is_err(), key(one)));
        // What was asked for twice is taken in once.
        listing.zones.dedup_by(|one, other| one.name.is_ok() == other.name.is_ok() && key(one) == key(other));
        Ok(listing)
    }

    /// One zone, and what of it is carried.
    ///
    /// # Errors
    /// When the source does not give it.
    pub async fn load(&self, one: &Listed, room: &mut Room) -> Result<Result<Carried, Refused>, SourceError> {
        let Ok(name) = &one.name else { return Err(SourceError::Zone("it has no name".to_owned())) };
        let mut zone = SourceZone {
            name: name.clone(),
            records: Vec::new(),
            comments: Vec::new(),
            beside: one.beside.clone(),
            warnings: Vec::new(),
            signed: one.signed,
        };
        match self {
            Self::Archive(archive) => return archive.load(one, name.clone(), room).await,
            Self::Postgres(database) => database.load(one, &mut zone, room).await?,
            Self::Api(api) => api.load(one, &mut zone, room).await?,
            Self::Axfr(primary) => primary.load(name, &mut zone, room).await?,
        }
        if zone.records.len() < super::room::LARGE_RECORDS / 10 {
            return Ok(carry(zone, RECORDS_MAX_COUNT));
        }
        let carried = tokio::task::spawn_blocking(move || carry(zone, RECORDS_MAX_COUNT)).await;
        carried.map_err(|_| SourceError::Zone("it could not be read".to_owned()))
    }
}

/// What is said of a zone whose contents come from elsewhere, and of one that lists others.
fn of_kind(kind: &str, masters: &str) -> Option<NotCarried> {
    let is = |kinds: &[&str]| kinds.iter().any(|one| one.eq_ignore_ascii_case(kind));
    if is(&["SLAVE", "SECONDARY"]) {
        let detail = format!(
            "it is a secondary of {}: it is carried as it was last transferred, and changes of its primary do not arrive here",
            if masters.is_empty() { "a primary" } else { masters }
        );
        return Some(NotCarried::new("secondary", None, 1, detail));
    }
    None
}

/// Whether a zone only lists other zones (RFC 9432).
pub fn is_catalog(kind: &str) -> bool {
    ["PRODUCER", "CONSUMER"].iter().any(|one| one.eq_ignore_ascii_case(kind))
}

/// A kind of metadata, and how many values it has. The values may be anything, so they are not shown.
fn metadata(kind: &str, count: usize) -> NotCarried {
    let what = if ["NSEC3PARAM", "NSEC3NARROW", "PRESIGNED", "PUBLISH-CDS", "PUBLISH-CDNSKEY"].contains(&kind)
    {
        "dnssec"
    } else {
        "metadata"
    };
    NotCarried::new(what, Some(kind), count, "metadata of PowerDNS has no place here yet")
}

fn keys(count: usize) -> Option<NotCarried> {
    let detail = "the zone is signed there: its keys are not carried yet, so take its DS out of the parent before it is served from here";
    (count > 0).then(|| NotCarried::new("dnssec_keys", None, count, detail))
}

fn tsig_keys(names: &[String]) -> impl Iterator<Item = NotCarried> + '_ {
    let detail = "TSIG keys are not carried yet";
    names.iter().map(move |name| NotCarried::new("tsig_key", Some(name), 1, detail))
}
