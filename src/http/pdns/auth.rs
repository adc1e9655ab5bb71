//! `X-API-Key` is a token like any other. Nothing else lets anybody in here: a cookie that a browser sends by itself least.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

const KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The layer before the one that asks who it is.
pub async fn layer(mut request: Request, next: Next) -> Response {
    let headers = request.headers_mut();
    headers.remove(header::AUTHORIZATION);
    headers.remove(header::COOKIE);
    let mut keys = headers.get_all(KEY).iter();
    let one = match (keys.next(), keys.next()) {
        (Some(key), None) => key.to_str().ok().map(|key| format!("Bearer {}", key.trim())),
        _ => None,
    };
    if let Some(mut shown) = one.and_then(|shown| HeaderValue::try_from(shown).ok()) {
        shown.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, shown);
    }
    next.run(request).await
}
