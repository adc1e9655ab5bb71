//! The description of the API: OpenAPI 3.1, from the code. What every operation has (the bearer token, the problem, the
//! headers and keys of a mutation) is added here once.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use std::sync::Arc;
use utoipa::PartialSchema;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, Info, OpenApi, PathItem, Ref, RefOr, Required, ResponseBuilder, Schema,
};

use super::described;
use super::dto::{FaultBody, ProblemBody};
use super::problem::CODES;

const SCHEME: &str = "token";
const COOKIE_SCHEME: &str = "session";

/// A text that is the same for as long as the process runs, with its entity tag.
#[derive(Clone)]
pub struct Fixed {
    media: &'static str,
    text: Arc<str>,
    etag: HeaderValue,
}

impl Fixed {
    /// A text of a media type.
    pub fn new(media: &'static str, text: String) -> Self {
        let digest = hex::encode(&blake3::hash(text.as_bytes()).as_bytes()[..16]);
        let etag = HeaderValue::try_from(format!("\"{digest}\""));
        Self { media, text: text.into(), etag: etag.unwrap_or(HeaderValue::from_static("\"fixed\"")) }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Answers a GET.
    pub fn answer(&self, headers: &HeaderMap) -> Response {
        let shown = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        let mine = self.etag.to_str().unwrap_or_default();
        let known = shown
            .flat_map(|tags| tags.split(','))
            .any(|tag| tag.trim() == "*" || tag.trim().trim_start_matches("W/") == mine);
        let tag = [(header::ETAG, self.etag.clone())];
        if known {
            return (StatusCode::NOT_MODIFIED, tag).into_response();
        }
        let media = [(header::CONTENT_TYPE, self.media)];
        (media, tag, self.text.as_ref().to_owned()).into_response()
    }
}

/// Writes the document as it is printed, committed and served.
///
/// # Errors
/// When it cannot be written as JSON, which it always can.
pub fn document(api: OpenApi) -> serde_json::Result<Fixed> {
    let mut api = complete(api);
    described::exemplify(&mut api)?;
    let mut text = api.to_pretty_json()?;
    text.push('\n');
    Ok(Fixed::new("application/json", text))
}

fn complete(mut api: OpenApi) -> OpenApi {
    let mut info = Info::new("Headwater", env!("CARGO_PKG_VERSION"));
    info.description = Some("The control plane of a private CDN and authoritative DNS.".to_owned());
    api.info = info;
    let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("hw_…").build();
    let cookie = ApiKeyValue::with_description(
        crate::people::session::COOKIE,
        "Of `POST /api/auth/login`; every request but GET also shows `X-CSRF-Token`, as `GET /api/me` has it",
    );
    let added = ComponentsBuilder::new()
        .schema("Problem", problem_schema())
        .schema("FaultBody", FaultBody::schema())
        .security_scheme(SCHEME, SecurityScheme::Http(scheme))
        .security_scheme(COOKIE_SCHEME, SecurityScheme::ApiKey(ApiKey::Cookie(cookie)))
        .build();
    let components = api.components.get_or_insert_default();
    components.schemas.extend(added.schemas);
    components.headers.extend(described::headers().map(|(name, one)| (name, RefOr::T(one))));
    components.responses.extend(described::problems().map(|(name, one)| (name, RefOr::T(one))));
    components.security_schemes.extend(added.security_schemes);
    for (path, item) in &mut api.paths.paths {
        // Whoever holds a token may revoke it, and says so by showing it; whoever logs in has none yet.
        let needs_token = !matches!(path.as_str(), "/api/tokens/revoke" | "/api/auth/login");
        let is_session = path.starts_with("/api/auth/");
        each_operation(item, |method, operation| {
            operation.operation_id = Some(operation_id(method, path));
            as_pages(operation);
            extend(operation, needs_token, method != "get" && !is_session);
            described::complete(operation, path, needs_token, method == "get");
        });
    }
    api
}

/// The body of a problem, with the codes that it may bear.
fn problem_schema() -> RefOr<Schema> {
    let mut schema = ProblemBody::schema();
    if let RefOr::T(Schema::Object(problem)) = &mut schema
        && let Some(RefOr::T(Schema::Object(code))) = problem.properties.get_mut("code")
    {
        let rows = CODES.iter().map(|(status, codes)| format!("{status}: {}", codes.join(", ")));
        let rows: Vec<String> = rows.collect();
        code.description = Some(format!(
            "Stable snake_case code. By status: {}. 422 bears the code of its faults when all share one. Codes may be added.",
            rows.join("; ")
        ));
        code.examples = CODES.iter().flat_map(|(_, codes)| codes.iter().map(|code| json!(code))).collect();
    }
    schema
}

fn each_operation(item: &mut PathItem, mut extend: impl FnMut(&str, &mut Operation)) {
    let PathItem { get, put, post, patch, delete, .. } = item;
    for (method, operation) in
        [("get", get), ("put", put), ("post", post), ("patch", patch), ("delete", delete)]
    {
        if let Some(operation) = operation {
            extend(method, operation);
        }
    }
}

/// Unique, and the same as long as the route is.
fn operation_id(method: &str, path: &str) -> String {
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let root = (!path.starts_with("/api/")).then_some("root");
    let words = words.filter(|word| *word != "api");
    std::iter::once(method).chain(root).chain(words).collect::<Vec<_>>().join("_")
}

/// A list is written in the code as what its items are; it is answered as a page or as lines.
fn as_pages(operation: &mut Operation) {
    let Some(RefOr::T(response)) = operation.responses.responses.get_mut("200") else { return };
    let Some(RefOr::T(content)) = response.content.get_mut("application/json") else { return };
    if !matches!(content.schema, Some(RefOr::T(Schema::Array(_)))) {
        return;
    }
    let Some(items) = content.schema.take() else { return };
    let next = ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
        .description(Some("The cursor of the next page; null at the end"));
    let page = ObjectBuilder::new()
        .property("items", items)
        .required("items")
        .property("next", next)
        .required("next");
    content.schema = Some(RefOr::T(Schema::Object(page.build())));
    let lines = ContentBuilder::new().schema(Some(ObjectBuilder::new().schema_type(Type::String))).build();
    response.content.insert("application/x-ndjson".to_owned(), RefOr::T(lines));
}

fn extend(operation: &mut Operation, needs_token: bool, changes: bool) {
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let problem = ResponseBuilder::new()
        .description("A problem (RFC 9457)")
        .content("application/problem+json", problem)
        .build();
    operation.responses.responses.insert("default".to_owned(), RefOr::T(problem));
    if needs_token {
        let one = |scheme: &str| SecurityRequirement::new::<_, [&str; 0], &str>(scheme, []);
        operation.security = Some(vec![one(SCHEME), one(COOKIE_SCHEME)]);
    }
    if changes {
        operation.parameters.get_or_insert_default().extend(of_mutations().map(RefOr::T));
    }
}

fn of_mutations() -> [Parameter; 7] {
    let one = |name: &str, place: ParameterIn, kind: Type, told: &str| {
        ParameterBuilder::new()
            .name(name)
            .parameter_in(place)
            .required(Required::False)
            .description(Some(told))
            .schema(Some(ObjectBuilder::new().schema_type(kind).build()))
            .build()
    };
    [
        one(
            "dry_run",
            ParameterIn::Query,
            Type::Boolean,
            "Decide and answer what would change; write nothing",
        ),
        one("allow", ParameterIn::Query, Type::String, "Guards that may be crossed, separated by commas"),
        one("take_over", ParameterIn::Query, Type::Boolean, "Change what tools of others manage too"),
        one("If-Match", ParameterIn::Header, Type::String, "The entity tag that the resource must have"),
        one("If-None-Match", ParameterIn::Header, Type::String, "* to create only"),
        one("Idempotency-Key", ParameterIn::Header, Type::String, "A UUID; a repetition replays the answer"),
        one(
            "Change-Note",
            ParameterIn::Header,
            Type::String,
            "Why; up to 500 characters, kept in the events",
        ),
    ]
}
