//! Lists: a page with a cursor, or the whole of it as a stream of lines. Cursors are the sort key of the last item, so
//! that a page is one range of an index and nothing is skipped or shown twice because something else changed.

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Problem;
use super::query::{FromQuery, Pairs};

/// Items of a page, at most.
pub const PAGE_MAX_ITEMS: i64 = 1_000;
/// Items of a page when none is asked for.
pub const PAGE_DEFAULT_ITEMS: i64 = 50;
/// Octets of a cursor, at most.
const CURSOR_MAX_BYTES: usize = 2_048;

/// A page: one item more than was asked for says that there is another.
pub struct Page<T, K> {
    /// The items, each with its sort key.
    pub items: Vec<(K, T)>,
}

/// Which part of which list is wanted.
#[derive(Debug, Clone)]
pub struct Listing<F, K> {
    /// The filters.
    pub filter: F,
    limit: i64,
    after: Option<K>,
    lines: bool,
    uri: Uri,
}

impl<S, F, K> FromRequestParts<S> for Listing<F, K>
where
    S: Send + Sync,
    F: FromQuery,
    K: DeserializeOwned,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut pairs = Pairs::parse(parts.uri.query())?;
        let limit = pairs.parsed("limit", |text| match text.parse::<i64>() {
            Ok(limit) if (1..=PAGE_MAX_ITEMS).contains(&limit) => Ok(limit),
            _ => Err(format!("write a number from 1 to {PAGE_MAX_ITEMS}")),
        });
        let after = pairs.parsed("cursor", |text| {
            decode(text).ok_or_else(|| "this is not the cursor of an earlier answer of this list".to_owned())
        });
        let filter = F::read(&mut pairs);
        pairs.finish()?;
        let limit = limit.unwrap_or(PAGE_DEFAULT_ITEMS);
        let lines = accepts(&parts.headers, "application/x-ndjson");
        Ok(Self { filter, limit, after, lines, uri: parts.uri.clone() })
    }
}

/// Whether the client names this media type.
pub fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .any(|part| part.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(media))
}

/// Answers a list. `fetch` reads up to so many items after a sort key.
///
/// # Errors
/// What the first page's reading says; a stream that breaks off later just ends without its last line.
pub async fn list<F, K, T, Fetch, Fut>(wanted: Listing<F, K>, fetch: Fetch) -> Result<Response, Problem>
where
    K: Serialize + Clone + Send + Sync + 'static,
    T: Serialize + Send + Sync + 'static,
    Fetch: Fn(Option<K>, i64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Page<T, K>, Problem>> + Send,
{
    if wanted.lines {
        return lines(wanted.after, fetch).await;
    }
    let mut page = fetch(wanted.after, wanted.limit + 1).await?;
    let limit = usize::try_from(wanted.limit).unwrap_or(usize::MAX);
    let more = page.items.len() > limit;
    page.items.truncate(limit);
    let next = page.items.last().filter(|_| more).and_then(|(key, _)| encode(key));
    let items: Vec<T> = page.items.into_iter().map(|(_, item)| item).collect();
    let mut response = Json(serde_json::json!({"items": items, "next": next})).into_response();
    if let Some(next) = next
        && let Ok(link) =
            HeaderValue::try_from(format!("<{}>; rel=\"next\"", with_cursor(&wanted.uri, &next)))
    {
        response.headers_mut().insert(header::LINK, link);
    }
    Ok(response)
}

async fn lines<K, T, Fetch, Fut>(after: Option<K>, fetch: Fetch) -> Result<Response, Problem>
where
    K: Clone + Send + Sync + 'static,
    T: Serialize + Send + Sync + 'static,
    Fetch: Fn(Option<K>, i64) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Page<T, K>, Problem>> + Send,
{
    let mut page = fetch(after, PAGE_MAX_ITEMS).await?;
    let body = async_stream::stream! {
        loop {
            let full = page.items.len() >= usize::try_from(PAGE_MAX_ITEMS).unwrap_or(usize::MAX);
            let last = page.items.last().map(|(key, _)| key.clone());
            let mut text = Vec::new();
            for (_, item) in &page.items {
                if let Err(error) = serde_json::to_writer(&mut text, item) {
                    yield Err(std::io::Error::other(error));
                    return;
                }
                text.push(b'\n');
            }
            if !text.is_empty() {
                yield Ok(Bytes::from(text));
            }
            if !full {
                return;
            }
            page = match fetch(last, PAGE_MAX_ITEMS).await {
                Ok(page) => page,
                // The body breaks off, which the client can tell from its end.
                Err(problem) => {
                    yield Err(std::io::Error::other(problem.code()));
                    return;
                }
            };
        }
    };
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(body)).into_response())
}

fn encode<K: Serialize>(key: &K) -> Option<String> {
    serde_json::to_vec(key).ok().map(|json| URL_SAFE_NO_PAD.encode(json))
}

fn decode<K: DeserializeOwned>(text: &str) -> Option<K> {
    if text.len() > CURSOR_MAX_BYTES {
        return None;
    }
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}

fn with_cursor(uri: &Uri, cursor: &str) -> String {
    let kept = uri.query().unwrap_or_default().split('&');
    let kept: Vec<&str> = kept.filter(|pair| !pair.is_empty() && !pair.starts_with("cursor=")).collect();
    let kept: String = kept.iter().map(|pair| format!("{pair}&")).collect();
    format!("{}?{kept}cursor={cursor}", uri.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_survive_and_forged_ones_do_not() {
        let key = ("a b".to_owned(), 16);
        let text = encode(&key).unwrap();
        assert_eq!(decode::<(String, i32)>(&text), Some(key));
        for bad in ["", "%", "e30", "bnVsbA=="] {
            assert_eq!(decode::<(String, i32)>(bad), None, "{bad}");
        }
        let uri: Uri = "/api/domains?cursor=old&label=a%3Db".parse().unwrap();
        assert_eq!(with_cursor(&uri, "new"), "/api/domains?label=a%3Db&cursor=new");
    }
}
