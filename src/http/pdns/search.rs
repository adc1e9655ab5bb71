//! `search-data`: what is like a pattern, in all zones that the caller may see; bounded.

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use headwater_events::actor::DomainRef;
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::dto::{self, absolute};
use super::error::refused;
use crate::app::App;
use crate::http::Problem;
use crate::http::auth::Authenticated;
use crate::http::query::Pairs;
use crate::http::rrsets::reads_in;
use crate::query::rrsets::ShownRrset;
use crate::query::zones::{self, FoundZone};

/// What is found, at most, where nothing else is asked for.
const FOUND_DEFAULT_ITEMS: i64 = 100;
/// What is found, at most.
const FOUND_MAX_ITEMS: i64 = 1_000;
/// Characters of a pattern, at most.
const PATTERN_MAX_CHARS: usize = 255;

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(search))
}

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    All,
    Zone,
    Record,
    Comment,
}

/// A pattern of PowerDNS (`*` anything, `?` one character) as one of SQL.
fn pattern(globs: &str) -> String {
    let mut like = String::with_capacity(globs.len());
    for c in globs.chars() {
        match c {
            '*' => like.push('%'),
            '?' => like.push('_'),
            '%' | '_' | '\\' => like.extend(['\\', c]),
            c => like.push(c),
        }
    }
    like
}

/// Whether a text is like a pattern, in any case.
fn is_like(globs: &str, text: &str) -> bool {
    let (globs, text): (Vec<char>, Vec<char>) =
        (globs.to_lowercase().chars().collect(), text.to_lowercase().chars().collect());
    let (mut g, mut t, mut star) = (0, 0, None);
    while let Some(c) = text.get(t) {
        match globs.get(g) {
            Some('*') => {
                star = Some((g, t));
                g += 1;
            }
            Some(glob) if *glob == '?' || glob == c => (g, t) = (g + 1, t + 1),
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (g, t) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    globs.get(g..).is_none_or(|rest| rest.iter().all(|glob| *glob == '*'))
}

#[utoipa::path(get, path = "/api/v1/servers/localhost/search-data")]
async fn search(State(app): State<App>, auth: Authenticated, uri: Uri) -> Result<Response, Problem> {
    let mut pairs = Pairs::parse(uri.query())?;
    let (wanted, kind, most) = (pairs.one("q"), pairs.one("object_type"), pairs.one("max"));
    pairs.taken()?;
    let wanted =
        wanted.filter(|q| !q.is_empty()).ok_or_else(|| refused(vec!["Query q can't be blank".into()]))?;
    if wanted.chars().count() > PATTERN_MAX_CHARS {
        return Err(refused(vec![format!("q has at most {PATTERN_MAX_CHARS} characters")]));
    }
    let kind = match kind.as_deref() {
        None | Some("all") => Kind::All,
        Some("zone") => Kind::Zone,
        Some("record") => Kind::Record,
        Some("comment") => Kind::Comment,
        Some(_) => {
            let detail = "object_type must be one of the following options: all, zone, record, comment";
            return Err(refused(vec![detail.to_owned()]));
        }
    };
    let most = match most.map(|text| text.parse::<i64>()) {
        None => FOUND_DEFAULT_ITEMS,
        Some(Ok(most)) if most > 0 => most.min(FOUND_MAX_ITEMS),
        Some(_) => return Err(refused(vec!["Maximum entries must be larger than 0".to_owned()])),
    };
    // Names are looked for as they are stored.
    let globs = wanted.strip_suffix('.').unwrap_or(&wanted).to_lowercase();
    let (like, visible) = (pattern(&globs), auth.caller.visible());
    let mut found = Vec::new();
    if matches!(kind, Kind::All | Kind::Zone) {
        let rows = zones::like(&app.pool, &visible, &like, most).await?;
        found.extend(rows.iter().map(zone));
    }
    if kind != Kind::Zone {
        for (of, one) in zones::rrsets_like(&app.pool, &visible, &like, most).await? {
            if reads(&auth, &of, &one) {
                found.extend(objects(&globs, kind, &of, &one));
            }
        }
    }
    found.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    Ok(Json(found).into_response())
}

fn reads(auth: &Authenticated, of: &FoundZone, one: &ShownRrset) -> bool {
    let domain = DomainRef { id: of.id, tenant: of.tenant, name: of.name.as_str() };
    reads_in(&auth.caller, domain, one)
}

fn zone(of: &FoundZone) -> Value {
    json!({"object_type": "zone", "name": format!("{}.", of.name), "zone_id": dto::zone_id(of.name.as_str())})
}

fn objects(globs: &str, kind: Kind, of: &FoundZone, one: &ShownRrset) -> Vec<Value> {
    let (name, id) = (absolute(one, &of.name), dto::zone_id(of.name.as_str()));
    let row = |object_type: &str, content: &str| {
        json!({
            "object_type": object_type, "name": name, "type": one.rrtype, "content": content,
            "zone": format!("{}.", of.name), "zone_id": id,
        })
    };
    let is_named = is_like(globs, name.strip_suffix('.').unwrap_or(&name));
    let mut found = Vec::new();
    if kind != Kind::Comment {
        for text in
            one.body.records.iter().filter(|text| is_named || is_like(globs, text.trim_end_matches('.')))
        {
            let mut record = row("record", &dto::content(one.rrtype, text.clone()));
            record["ttl"] = json!(one.body.ttl);
            record["disabled"] = json!(false);
            found.push(record);
        }
    }
    if kind != Kind::Record {
        let comment = one.body.comment.as_deref().filter(|text| is_named || is_like(globs, text));
        found.extend(comment.map(|text| row("comment", text)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_are_those_of_powerdns() {
        for (globs, text, expected) in [
            ("*", "", true),
            ("*", "www", true),
            ("w*w", "ww", true),
            ("w*w", "wxyzw", true),
            ("w*w", "wxyz", false),
            ("w?w", "wxw", true),
            ("w?w", "ww", false),
            ("WWW*", "www.example.com", true),
            ("*a*b*", "xaxxbx", true),
            ("*a*b*", "xbxxax", false),
            ("a%", "ab", false),
            ("**", "x", true),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(is_like(globs, text), expected, "{globs} {text}");
        }
        assert_eq!(pattern("a*b?c%d_e\\"), "a%b_c\\%d\\_e\\\\");
    }
}
