//! What a browser holds and shows: the cookie of a session, and the proof that a page of this host sent the request.

use axum::http::header::{COOKIE, HOST, ORIGIN, SET_COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use std::time::Duration;

use crate::http::Problem;
use crate::people::session::{self, OpenSession, SessionSecret};

/// The header that unsafe requests of a session show.
pub const CSRF_HEADER: HeaderName = HeaderName::from_static("x-csrf-token");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The session that a request shows, if it shows one. What is no session of ours is one that nobody has.
pub fn shown(headers: &HeaderMap) -> Option<Result<SessionSecret, ()>> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut named = lines
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(name, _)| *name == session::COOKIE);
    named.next().map(|(_, value)| SessionSecret::read(value).ok_or(()))
}

/// Gives the cookie of a session.
pub fn set(headers: &mut HeaderMap, secret: &SessionSecret, life: Duration) {
    write(headers, secret.text().expose(), life);
}

/// Takes it back.
pub fn clear(headers: &mut HeaderMap) {
    write(headers, "", Duration::ZERO);
}

fn write(headers: &mut HeaderMap, value: &str, life: Duration) {
    let (name, seconds) = (session::COOKIE, life.as_secs());
    let cookie = format!("{name}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax");
    if let Ok(mut value) = HeaderValue::try_from(cookie) {
        value.set_sensitive(true);
        headers.append(SET_COOKIE, value);
    }
}

/// Refuses a request that a page of another site sent. Programs that are no browser say neither of both.
///
/// # Errors
/// 403.
pub fn same_site(headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
    let refused = || Problem::forbidden("a page of another site sent this request");
    if let Some(site) = headers.get(&FETCH_SITE) {
        let own = matches!(site.to_str(), Ok("same-origin" | "none"));
        return if own { Ok(()) } else { Err(refused()) };
    }
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| uri.authority().map(|authority| authority.as_str()));
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    match (origin, host) {
        (Some((_, origin)), Some(host)) if origin.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(refused()),
    }
}

/// Refuses an unsafe request of a session that does not show what only its own pages know.
///
/// # Errors
/// 403.
pub fn own_page(headers: &HeaderMap, uri: &Uri, session: &OpenSession) -> Result<(), Problem> {
    same_site(headers, uri)?;
    match headers.get(&CSRF_HEADER) {
        Some(shown) if session.csrf.is(shown.as_bytes()) => Ok(()),
        _ => Err(Problem::forbidden("show the token of this session: X-CSRF-Token, as GET /api/me has it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn another_sites_pages_are_refused() {
        let uri: Uri = "/api/me".parse().unwrap();
        let whole: Uri = "https://panel.example.net/api/me".parse().unwrap();
        let asks = |pairs: &[(&str, &str)]| same_site(&headers(pairs), &uri).is_ok();
        assert!(asks(&[]));
        assert!(asks(&[("sec-fetch-site", "same-origin"), ("origin", "https://evil.example")]));
        for site in ["cross-site", "same-site", "", "SAME-ORIGIN"] {
            assert!(!asks(&[("sec-fetch-site", site)]), "{site}");
        }
        assert!(asks(&[("origin", "https://panel.example.net"), ("host", "Panel.example.net")]));
        assert!(!asks(&[("origin", "https://evil.example"), ("host", "panel.example.net")]));
        assert!(!asks(&[("origin", "https://panel.example.net:8443"), ("host", "panel.example.net")]));
        assert!(!asks(&[("origin", "null"), ("host", "panel.example.net")]));
        assert!(!asks(&[("origin", "https://panel.example.net")]));
        let two = headers(&[("origin", "https://panel.example.net")]);
        assert!(same_site(&two, &whole).is_ok(), "HTTP/2 has no Host");
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let secret = SessionSecret::generate();
        let line = format!("a=b; {}={}", session::COOKIE, secret.text().expose());
        let found = shown(&headers(&[("cookie", "x=y"), ("cookie", &line)]));
        assert_eq!(found.and_then(Result::ok).map(|found| found.digest()), Some(secret.digest()));
        assert!(shown(&headers(&[("cookie", "__Host-headwater=x")])).is_some_and(|found| found.is_err()));
        assert!(shown(&headers(&[("cookie", "headwater=x")])).is_none());
    }
}
