//! Bodies of DNS clusters.

use headwater_events::admin::{ClusterPatch, NAME_MAX_BYTES, name_faults, reach_faults};
use headwater_events::dns::DomainName;
use headwater_events::event::ClusterCreated;
use headwater_events::time::Timestamp;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::http::body::{Fields, FromBody};
use crate::query::clusters::StoredCluster;

/// A DNS cluster to register.
#[derive(Debug, ToSchema)]
#[allow(dead_code)] // the schema; what is read is the fact itself
pub struct NewCluster {
    /// Its name, unique.
    name: String,
    /// The file on the control plane's hosts that holds the URL of its database.
    database_url_file: String,
    /// Address and port at which its PowerDNS answers.
    #[schema(example = "192.0.2.53:53")]
    dns: String,
    /// Address and port at which dnsdist answers from this cluster alone, if there is one.
    front: Option<String>,
    /// The names under which it is delegated to.
    nameservers: Option<Vec<String>>,
    /// Whether it is deployed to from the start.
    enabled: Option<bool>,
}

impl FromBody for ClusterCreated {
    fn read(fields: &mut Fields) -> Option<Self> {
        let name = fields.required_text("name");
        let database_url_file = fields.required_text("database_url_file");
        let dns = fields.required_text("dns");
        let front = fields.text("front");
        let nameservers = nameservers(fields);
        let enabled = fields.flag("enabled");
        fields.also(|| {
            let named = name.as_ref().map(|name| name_faults(name, NAME_MAX_BYTES));
            let mut faults = reach_faults(database_url_file.as_deref(), dns.as_deref(), front.as_deref());
            faults.extend(named.into_iter().flatten());
            faults
        });
        Some(Self {
            name: name?,
            database_url_file: database_url_file?,
            dns: dns?,
            front,
            nameservers,
            enabled,
        })
    }
}

/// What changes of a DNS cluster; what is left out stays.
#[derive(Debug, ToSchema)]
#[allow(dead_code)] // the schema; what is read is the patch itself
pub struct PatchedCluster {
    /// The file on the control plane's hosts that holds the URL of its database.
    database_url_file: Option<String>,
    /// Address and port at which its PowerDNS answers.
    dns: Option<String>,
    /// Address and port at which dnsdist answers from this cluster alone; null: there is none.
    front: Option<String>,
    /// The names under which it is delegated to.
    nameservers: Option<Vec<String>>,
}

impl FromBody for ClusterPatch {
    fn read(fields: &mut Fields) -> Option<Self> {
        let database_url_file = fields.text("database_url_file");
        let dns = fields.text("dns");
        let front = match fields.take_nullable("front") {
            None => None,
            Some(Value::Null) => Some(None),
            Some(Value::String(text)) => Some(Some(text)),
            Some(_) => {
                fields.fault("front", "invalid_type", "this must be a string or null");
                None
            }
        };
        let nameservers = fields.has("nameservers").then(|| nameservers(fields));
        fields.also(|| {
            let front = front.as_ref().and_then(Option::as_deref);
            reach_faults(database_url_file.as_deref(), dns.as_deref(), front)
        });
        Some(Self { database_url_file, dns, front, nameservers })
    }
}

fn nameservers(fields: &mut Fields) -> Vec<DomainName> {
    let mut nameservers = Vec::new();
    let texts = fields.texts("nameservers").unwrap_or_default();
    for (index, text) in texts.iter().enumerate().filter_map(|(index, text)| Some((index, text.as_ref()?))) {
        match DomainName::parse(text).and_then(|name| name.check_a_labels().map(|()| name)) {
            Ok(name) => nameservers.push(name),
            Err(fault) => fields.fault(&format!("nameservers/{index}"), fault.code.as_str(), fault.detail),
        }
    }
    nameservers
}

/// A DNS cluster.
#[derive(Debug, Serialize, ToSchema)]
pub struct Cluster {
    /// Its id.
    id: Uuid,
    /// Its name.
    name: String,
    /// The file that holds the URL of its database.
    database_url_file: String,
    /// Where its PowerDNS answers.
    dns: String,
    /// Where dnsdist answers from it alone.
    front: Option<String>,
    /// The names under which it is delegated to.
    nameservers: Vec<String>,
    /// `enabled`, `disabled`, or `leaving`: it goes when nothing that was deployed to it is left there.
    state: &'static str,
    /// Enabled, and reached within the last minute.
    in_service: bool,
    /// When it was last reached.
    #[schema(value_type = Option<String>, format = DateTime)]
    reached_at: Option<Timestamp>,
    /// When it was last not reached.
    #[schema(value_type = Option<String>, format = DateTime)]
    failed_at: Option<Timestamp>,
    /// Why.
    last_error: Option<String>,
    /// When it was registered.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl From<StoredCluster> for Cluster {
    fn from(stored: StoredCluster) -> Self {
        Self {
            id: stored.id.as_uuid(),
            name: stored.name,
            database_url_file: stored.database_url_file,
            dns: stored.dns,
            front: stored.front,
            nameservers: stored.nameservers,
            state: match (stored.enabled, stored.leaving) {
                (true, _) => "enabled",
                (false, true) => "leaving",
                (false, false) => "disabled",
            },
            in_service: stored.in_service,
            reached_at: stored.reached_at,
            failed_at: stored.failed_at,
            last_error: stored.last_error,
            created_at: stored.created_at,
        }
    }
}
