//! `GET /rrsets`: RRsets of all domains that the caller may see, by a value, a type, a name, a tool.
//!
//! What is found is what owners wrote. What the platform derives is the same in every zone, and stands in the list of each
//! domain.

use axum::extract::State;
use axum::response::Response;
use headwater_events::actor::{Caller, DomainRef};
use headwater_events::dns::{DomainName, OwnerKey, OwnerName, Rdata, RrType};
use headwater_events::manager::Manager;
use headwater_events::scope::{Grant, Scope};
use serde::Serialize;
use std::collections::BTreeSet;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::auth::Authenticated;
use super::dto::rrset::Rrset;
use super::page::{self, Listing, PAGE_MAX_ITEMS, Page, PageParams};
use super::query::{FromQuery, Pairs};
use super::rrsets::reads_in;
use crate::app::App;
use crate::query::search::{self, FoundRrset, Place, Wanted, WantedName};

/// Octets of a value that is looked for, at most.
const CONTENT_MAX_BYTES: usize = 4_096;

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Which RRsets are wanted.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // the documentation of what `Wanted` reads
struct SearchParams {
    /// A whole value, in any spelling of it, or a whole word of one: `192.0.2.1`, `10 mail.example.com.`,
    /// `mail.example.com.`, `include:_spf.example.com`.
    content: Option<String>,
    /// The type.
    r#type: Option<String>,
    /// The owner: `www`, `@`, `*` (the wildcard itself) in every domain; `*.dyn` or `_acme-challenge.*`, where the `*`
    /// stands for one label or more; or an absolute name with its final dot.
    name: Option<String>,
    /// The tool that owns it.
    managed_by: Option<String>,
}

impl FromQuery for Wanted {
    fn read(pairs: &mut Pairs) -> Self {
        let rrtype = pairs.parsed("type", |text| RrType::parse(text).map_err(|fault| fault.detail));
        let content = pairs.parsed("content", |text| match text.len() {
            1..=CONTENT_MAX_BYTES => Ok(text.to_owned()),
            _ => Err(format!("write 1 to {CONTENT_MAX_BYTES} octets")),
        });
        let manager = pairs.parsed("managed_by", |text| match text.parse::<Manager>() {
            Ok(manager) => Ok(manager.to_string()),
            Err(error) => Err(format!("{error}; what the platform derives is listed with each domain")),
        });
        Self {
            texts: content.map(|content| spellings(&content, rrtype)),
            types: rrtype.map(|rrtype| vec![i32::from(rrtype.code())]),
            name: pairs.parsed("name", name),
            manager,
        }
    }
}

/// A value as it could be stored: as it is, in lower case, in quotes, and in the canonical form of every type that it is a
/// value of.
fn spellings(content: &str, rrtype: Option<RrType>) -> Vec<String> {
    let mut found = BTreeSet::from([content.to_owned(), content.to_lowercase()]);
    if !content.contains('"') {
        found.insert(format!("\"{content}\""));
    }
    // It only serves to tell what is wrong with a name, which nobody is told here.
    if let Ok(zone) = DomainName::parse("invalid") {
        let types: Vec<RrType> = rrtype.map_or_else(|| RrType::all_writable().collect(), |one| vec![one]);
        let canonical = types.into_iter().filter_map(|rrtype| Rdata::parse(rrtype, content, &zone).ok());
        found.extend(canonical.map(|rdata| rdata.as_text().to_owned()));
    }
    found.into_iter().collect()
}

/// Reads an owner that is looked for.
fn name(text: &str) -> Result<WantedName, String> {
    let relative = |text: &str| OwnerName::relative(text).map_err(|fault| fault.detail);
    if text != "." && text.ends_with('.') && !text.ends_with("\\.") {
        return absolute(text).map(WantedName::Absolute);
    }
    let owner = match (text.strip_prefix("*."), text.strip_suffix(".*")) {
        (Some(below), None) => return at_one_end(below).map(WantedName::Below),
        (None, Some(begin)) if !begin.ends_with('\\') => return at_one_end(begin).map(WantedName::Beginning),
        (Some(_), Some(_)) => return Err("a * stands at one end".to_owned()),
        _ => relative(text)?,
    };
    Ok(WantedName::Exact(owner.key()))
}

fn at_one_end(text: &str) -> Result<OwnerKey, String> {
    let owner = OwnerName::relative(text).map_err(|fault| fault.detail)?;
    if owner.is_apex() || owner.is_wildcard() {
        return Err("a * stands at one end, once, for labels of a name".to_owned());
    }
    Ok(owner.key())
}

/// What an absolute name is in each domain that could hold it.
fn absolute(text: &str) -> Result<Vec<(String, OwnerKey)>, String> {
    let whole = text.trim_end_matches('.');
    let ends = std::iter::once(0).chain(whole.match_indices('.').map(|(at, _)| at + 1));
    let zones = ends.filter_map(|at| DomainName::parse(whole.get(at..)?).ok());
    let places: Vec<(String, OwnerKey)> = zones
        .filter_map(|zone| OwnerName::parse(text, &zone).ok().map(|owner| (zone.to_string(), owner.key())))
        .collect();
    if places.is_empty() { Err("this is no name of a domain".to_owned()) } else { Ok(places) }
}

/// An RRset, and where it is.
#[derive(Debug, Serialize, ToSchema)]
struct FoundBody {
    /// Its domain.
    #[schema(example = "example.com")]
    domain: String,
    /// The RRset.
    #[serde(flatten)]
    rrset: Rrset,
}

/// RRsets of all domains that the caller may see, oldest domain first, in the order of their zones. Those that the platform
/// derives are left out: they are the same in every zone.
#[utoipa::path(get, path = "/api/rrsets", tag = "rrsets", params(SearchParams, PageParams),
    responses((status = 200, body = Vec<FoundBody>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    wanted: Listing<Wanted, Place>,
) -> Result<Response, Problem> {
    let Some(filter) = narrowed(wanted.filter.clone(), &auth.caller) else {
        return page::list(wanted, |_, _| async { Ok(Page::<FoundBody, Place> { items: Vec::new() }) }).await;
    };
    page::list(wanted, move |after: Option<Place>, most| {
        let (app, caller, filter) = (app.clone(), auth.caller.clone(), filter.clone());
        async move {
            let found = readable(&app, &caller, &filter, after, most).await?;
            let item = |one: FoundRrset| {
                (one.place(), FoundBody { domain: one.name, rrset: Rrset::from(one.rrset) })
            };
            Ok(Page { items: found.into_iter().map(item).collect() })
        }
    })
    .await
}

/// What is wanted, with what the caller is shown at all; none where that is nothing.
fn narrowed(mut wanted: Wanted, caller: &Caller) -> Option<Wanted> {
    if caller.sees_own_alone() {
        let own = caller.manager()?.as_str();
        if wanted.manager.get_or_insert_with(|| own.to_owned()) != own {
            return None;
        }
    }
    let scopes: Option<Vec<&Scope>> =
        caller.scopes.as_ref().map(|all| all.iter().filter(|scope| scope.gives(Grant::Read)).collect());
    let types: Option<BTreeSet<i32>> = scopes.and_then(|scopes| {
        let types = scopes.iter().map(|scope| scope.types.as_ref());
        let codes =
            |types: &BTreeSet<RrType>| types.iter().map(|one| i32::from(one.code())).collect::<Vec<_>>();
        types
            .map(|types| types.map(codes))
            .collect::<Option<Vec<_>>>()
            .map(|all| all.concat().into_iter().collect())
    });
    if let Some(types) = types {
        match &mut wanted.types {
            Some(asked) => asked.retain(|code| types.contains(code)),
            none => *none = Some(types.into_iter().collect()),
        }
    }
    Some(wanted)
}

/// The next RRsets that the caller may read: of a token that is limited to some records that may be few of what is found,
/// so it is looked at page by page until there are enough.
async fn readable(
    app: &App,
    caller: &Caller,
    wanted: &Wanted,
    mut after: Option<Place>,
    most: i64,
) -> Result<Vec<FoundRrset>, Problem> {
    let is_whole = caller.scopes.as_ref().is_none_or(|scopes| scopes.iter().all(Scope::is_whole));
    let look = if is_whole { most } else { PAGE_MAX_ITEMS };
    let enough = usize::try_from(most).unwrap_or(usize::MAX);
    let visible = caller.visible();
    let mut shown = Vec::new();
    loop {
        let found = search::page(&app.pool, &visible, wanted, after.as_ref(), look).await?;
        let is_last = i64::try_from(found.len()).is_ok_and(|count| count < look);
        after = found.last().map(FoundRrset::place);
        shown.extend(found.into_iter().filter(|one| reads(caller, one)));
        if shown.len() >= enough || is_last {
            shown.truncate(enough);
            return Ok(shown);
        }
    }
}

fn reads(caller: &Caller, one: &FoundRrset) -> bool {
    let domain = DomainRef { id: one.domain, tenant: one.tenant, name: &one.name };
    reads_in(caller, domain, &one.rrset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_looked_for_in_every_spelling() {
        let of = |text: &str| spellings(text, None);
        assert!(of("10 MAIL.example.com.").contains(&"10 mail.example.com.".to_owned()));
        assert!(of("2001:DB8:0::1").contains(&"2001:db8::1".to_owned()));
        assert!(of("v=spf1 -all").contains(&"\"v=spf1 -all\"".to_owned()));
        assert_eq!(spellings("Plain", Some(RrType::A)), ["\"Plain\"", "Plain", "plain"]);
    }

    #[test]
    fn names_are_relative_absolute_or_open_at_one_end() {
        let key = |text: &str| OwnerName::relative(text).unwrap().key();
        assert_eq!(name("WWW"), Ok(WantedName::Exact(key("www"))));
        assert_eq!(name("@"), Ok(WantedName::Exact(key("@"))));
        assert_eq!(name("*"), Ok(WantedName::Exact(key("*"))));
        assert_eq!(name("*.b.dyn"), Ok(WantedName::Below(key("b.dyn"))));
        assert_eq!(name("_acme-challenge.*"), Ok(WantedName::Beginning(key("_acme-challenge"))));
        let Ok(WantedName::Absolute(places)) = name("*.a.example.com.") else { panic!("no absolute name") };
        let told: Vec<_> = places.iter().map(|(zone, key)| format!("{zone}:{}", key.as_str())).collect();
        assert_eq!(told, ["a.example.com:*", "example.com:a *", "com:example a *"]);
        for bad in ["", ".", "*.*", "*.a.*", "a..b", "*.@", "a b"] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }
}
