//! Entity tags: the revision that last changed a resource, quoted. `If-Match` compares strongly (a weak tag never
//! matches), `If-None-Match` weakly, as RFC 9110 sections 8.8.3 and 13.1 have it.

use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headwater_events::domain::Precondition;
use headwater_events::ids::Revision;
use serde::Serialize;

use super::Problem;

/// A revision that nothing has: what a tag that is not ours stands for.
const NEVER: Revision = Revision::new(-1);

/// What a conditional header says.
#[derive(Debug, PartialEq, Eq)]
enum Tags {
    Any,
    Listed(Vec<(bool, String)>),
}

/// The entity tag of a revision.
pub fn etag(revision: Revision) -> String {
    format!("\"{revision}\"")
}

/// Sets the entity tag of an answer.
pub fn set_etag(headers: &mut HeaderMap, revision: Revision) {
    if let Ok(value) = HeaderValue::try_from(etag(revision)) {
        headers.insert(header::ETAG, value);
    }
}

/// The precondition of a mutation.
///
/// # Errors
/// 400 for a header that is none, or that a mutation cannot have.
pub fn precondition(headers: &HeaderMap) -> Result<Precondition, Problem> {
    let if_match = read(headers, &header::IF_MATCH)?.map(|tags| match tags {
        Tags::Any => Vec::new(),
        Tags::Listed(tags) => tags.iter().map(|(weak, tag)| strong(*weak, tag)).collect(),
    });
    let if_absent = match read(headers, &header::IF_NONE_MATCH)? {
        None => false,
        Some(Tags::Any) => true,
        Some(Tags::Listed(_)) => {
            return Err(Problem::malformed("If-None-Match of a mutation can only be * (create only)"));
        }
    };
    Ok(Precondition { if_match, if_absent })
}

fn strong(weak: bool, tag: &str) -> Revision {
    let ours = tag.parse::<i64>().ok().filter(|n| !weak && *n >= 0 && n.to_string() == tag);
    ours.map_or(NEVER, Revision::new)
}

/// Answers a GET with a resource, or with 304 when the client has it, or with 412.
///
/// # Errors
/// 400 for a malformed header, 412 when `If-Match` does not hold.
pub fn answer<T: Serialize>(headers: &HeaderMap, revision: Revision, body: &T) -> Result<Response, Problem> {
    Ok(if fresh(headers, revision)? { not_modified(revision) } else { shown(revision, body) })
}

/// Answers a GET with 304.
pub fn not_modified(revision: Revision) -> Response {
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    set_etag(response.headers_mut(), revision);
    response
}

/// Answers a GET with a resource.
pub fn shown<T: Serialize>(revision: Revision, body: &T) -> Response {
    let mut response = Json(body).into_response();
    set_etag(response.headers_mut(), revision);
    response
}

/// Whether the client has this revision already.
///
/// # Errors
/// As [`answer`].
pub fn fresh(headers: &HeaderMap, revision: Revision) -> Result<bool, Problem> {
    if let Some(Tags::Listed(tags)) = read(headers, &header::IF_MATCH)?
        && !tags.iter().any(|(weak, tag)| strong(*weak, tag) == revision)
    {
        return Err(Problem::revision_mismatch(Some(revision)));
    }
    Ok(match read(headers, &header::IF_NONE_MATCH)? {
        None => false,
        Some(Tags::Any) => true,
        Some(Tags::Listed(tags)) => tags.iter().any(|(_, tag)| strong(false, tag) == revision),
    })
}

fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, Problem> {
    let mut found = None;
    for value in headers.get_all(name) {
        let malformed =
            || Problem::malformed(format!("{name} must be * or a list of quoted entity tags, such as \"7\""));
        let tags = parse(value.to_str().map_err(|_| malformed())?).ok_or_else(malformed)?;
        found = match (found, tags) {
            (None, tags) => Some(tags),
            (Some(Tags::Listed(mut all)), Tags::Listed(more)) => {
                all.extend(more);
                Some(Tags::Listed(all))
            }
            _ => return Err(malformed()),
        };
    }
    Ok(found)
}

fn parse(text: &str) -> Option<Tags> {
    let text = text.trim();
    if text == "*" {
        return Some(Tags::Any);
    }
    let mut tags = Vec::new();
    let mut rest = text;
    loop {
        let (weak, quoted) = match rest.strip_prefix("W/") {
            Some(quoted) => (true, quoted),
            None => (false, rest),
        };
        let (tag, after) = quoted.strip_prefix('"')?.split_once('"')?;
        tags.push((weak, tag.to_owned()));
        let after = after.trim_start();
        if after.is_empty() {
            return Some(Tags::Listed(tags));
        }
        rest = after.strip_prefix(',')?.trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, text: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(text))])
    }

    #[test]
    fn if_match_compares_strongly() {
        let listed = |text| precondition(&headers(header::IF_MATCH, text)).unwrap().if_match.unwrap();
        assert_eq!(listed("\"7\""), [Revision::new(7)]);
        assert_eq!(listed("\"7\", \"8\""), [Revision::new(7), Revision::new(8)]);
        assert_eq!(listed("W/\"7\""), [NEVER]);
        assert_eq!(listed("\"+7\""), [NEVER]);
        assert_eq!(listed("*"), []);
        for bad in ["7", "", "\"7", "\"7\" \"8\"", "w/\"7\"", "\"7\","] {
            assert!(precondition(&headers(header::IF_MATCH, bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn if_none_match_compares_weakly() {
        let seven = Revision::new(7);
        for (text, expected) in [("\"7\"", true), ("W/\"7\"", true), ("\"8\"", false), ("*", true)] {
            assert_eq!(fresh(&headers(header::IF_NONE_MATCH, text), seven).unwrap(), expected, "{text}");
        }
        assert!(precondition(&headers(header::IF_NONE_MATCH, "*")).unwrap().if_absent);
        assert!(precondition(&headers(header::IF_NONE_MATCH, "\"7\"")).is_err());
        assert!(fresh(&headers(header::IF_MATCH, "\"6\""), seven).is_err());
    }
}
