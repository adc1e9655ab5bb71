//! Lists whose items are written already: one page with its cursor, and the
//! media type that was asked for.

use crate::http::Problem;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::Response;
use std::fmt::Display;

/// How a list is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One page.
    Json,
    /// The whole list, one object a line.
    Lines,
    /// The whole list as a table.
    Csv,
}

impl Form {
    /// What the request asks for: the first of the media types it names that there is.
    pub fn of(headers: &HeaderMap) -> Self {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let named = accept.split(',').map(|range| range.split(';').next().unwrap_or_default().trim());
        named
            .filter_map(|range| match range {
                "application/x-ndjson" => Some(Self::Lines),
                "text/csv" => Some(Self::Csv),
                "application/json" | "*/*" => Some(Self::Json),
                _ => None,
            })
            .next()
            .unwrap_or(Self::Json)
    }

    /// The media type.
    pub fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Json => "application/json",
            Self::Lines => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8; header=present",
        })
    }

    /// A response of this form.
    pub fn response(self, body: Body) -> Response {
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, self.content_type());
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// One page of items that are JSON already, joined by commas.
pub fn page(uri: &Uri, items: &[u8], key: &str, next: Option<impl Display>) -> Response {
    let next = next.map(|next| next.to_string());
    let mut body = Vec::with_capacity(items.len() + 64);
    body.extend_from_slice(b"{\"items\":[");
    body.extend_from_slice(items);
    body.extend_from_slice(b"],\"next\":");
    match &next {
        Some(next) => body.extend_from_slice(format!("\"{next}\"}}").as_bytes()),
        None => body.extend_from_slice(b"null}"),
    }
    let mut response = Form::Json.response(Body::from(body));
    if let Some(link) = next.and_then(|next| link(uri, key, &next)) {
        response.headers_mut().insert(header::LINK, link);
    }
    response
}

/// `Link: rel="next"`: the same request from the next item on.
fn link(uri: &Uri, key: &str, next: &str) -> Option<HeaderValue> {
    let kept = uri.query().unwrap_or_default().split('&').filter(|pair| {
        let name = pair.split('=').next().unwrap_or_default();
        !pair.is_empty() && name != key && name != "cursor"
    });
    let query: Vec<String> = kept.map(str::to_owned).chain([format!("{key}={next}")]).collect();
    HeaderValue::from_str(&format!("<{}?{}>; rel=\"next\"", uri.path(), query.join("&"))).ok()
}

/// 409: the state does not allow it.
pub fn conflict(code: &'static str, detail: impl Into<String>) -> Problem {
    Problem::new(axum::http::StatusCode::CONFLICT, code, detail)
}
