//! Bodies of scopes: what a token is limited to. Every fault of every scope is told at once.

use headwater_events::dns::{DnsFault, DomainName, RrType};
use headwater_events::scope::{
    ALL_DOMAINS, Domains, Grant, NamePattern, SCOPE_MAX_ITEMS, SCOPES_MAX_COUNT, Scope,
};
use std::collections::BTreeSet;
use utoipa::ToSchema;

use crate::http::body::Fields;

/// One part of what a token may do.
#[derive(ToSchema)]
#[allow(dead_code)] // the documentation of what `scope` reads
pub struct ScopeBody {
    /// `read`, `write` (what is served) or `admin` (what owners and administrators may beyond that).
    #[schema(example = json!(["read", "write"]))]
    verbs: Vec<String>,
    /// Names of domains, or `["*"]` for all that its owner has.
    #[schema(example = json!(["example.com"]))]
    domains: Vec<String>,
    /// Owner names of records relative to the domain; `*` as the first or last label stands for one label or more. Left
    /// out: everything.
    #[schema(example = json!(["_acme-challenge"]))]
    names: Option<Vec<String>>,
    /// Types of records. Left out: everything.
    #[schema(example = json!(["TXT"]))]
    types: Option<Vec<String>>,
}

type Wrong = (&'static str, String);

fn told(fault: DnsFault) -> Wrong {
    (fault.code.as_str(), fault.detail)
}

/// The scopes of a body; none where the key is left out.
pub(super) fn scopes(fields: &mut Fields) -> Option<Vec<Scope>> {
    let listed = fields.list("scopes")?;
    if listed.is_empty() || listed.len() > SCOPES_MAX_COUNT {
        let detail = format!("1 to {SCOPES_MAX_COUNT} scopes; left out, the token is not limited");
        fields.fault("scopes", "invalid_count", detail);
    }
    let mut scopes = Vec::new();
    for (index, value) in listed.into_iter().enumerate().take(SCOPES_MAX_COUNT) {
        let mut inner = Fields::new(value, format!("/scopes/{index}"));
        scopes.extend(scope(&mut inner));
        fields.faults(inner.finish());
    }
    Some(scopes)
}

fn scope(fields: &mut Fields) -> Option<Scope> {
    let verbs = items(fields, "verbs", true, |text| {
        Grant::from_name(text).ok_or(("unknown_verb", "the verbs are read, write, admin".to_owned()))
    });
    let domains = items(fields, "domains", true, |text| match text {
        ALL_DOMAINS => Ok(None),
        text => DomainName::parse(text).map(Some).map_err(told),
    });
    let names = items(fields, "names", false, |text| NamePattern::parse(text).map_err(told));
    let types = items(fields, "types", false, |text| RrType::parse(text).map_err(told));
    let domains: BTreeSet<Option<DomainName>> = domains?;
    let domains = match domains.into_iter().collect::<Option<BTreeSet<_>>>() {
        Some(named) => Domains::Named(named),
        None => Domains::All,
    };
    Some(Scope { verbs: verbs?, domains, names, types })
}

/// A list of at least one item, none of them twice in what it comes to.
fn items<T: Ord>(
    fields: &mut Fields,
    key: &str,
    required: bool,
    read: impl Fn(&str) -> Result<T, Wrong>,
) -> Option<BTreeSet<T>> {
    if required && !fields.has(key) {
        fields.missing(key);
    }
    let texts = fields.texts(key)?;
    if texts.is_empty() || texts.len() > SCOPE_MAX_ITEMS {
        fields.fault(key, "invalid_count", format!("1 to {SCOPE_MAX_ITEMS} of them"));
    }
    let mut found = BTreeSet::new();
    for (index, text) in texts.into_iter().enumerate().take(SCOPE_MAX_ITEMS) {
        match text.as_deref().map(&read) {
            Some(Ok(item)) => {
                found.insert(item);
            }
            Some(Err((code, detail))) => fields.fault(&format!("{key}/{index}"), code, detail),
            // What is no text was told already.
            None => {}
        }
    }
    Some(found)
}
