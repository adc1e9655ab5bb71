//! What every operation of the description has and no handler says by itself: the problems that it may be refused with,
//! each status with the types it may have and an example; the headers of its answers; examples of what is sent, of what
//! is answered and of what stands in a path.

use serde_json::{Value, json};
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{
    Content, ContentBuilder, Header, OpenApi, Ref, RefOr, Response, ResponseBuilder, Schema,
};

use super::docs::sample;
use super::problem::{CODES, type_of};

/// Values of parameters of paths, by name; every other one is an id.
const IN_PATHS: [(&str, &str); 5] =
    [("d", "example.com"), ("name", "www"), ("type", "A"), ("user", sample::ID), ("id", sample::ID)];
/// Values of ids that are none by themselves, by the beginning of their paths.
const IDS: [(&str, &str); 2] = [
    ("/api/cells/", "01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10-0"),
    ("/api/deployments/", "example.com@01982f6e-7b4c-7d30-9d0a-3f1f0f3f5f10"),
];
const REQUEST_ID: &str = "X-Request-Id";
const LOCATION: &str = "Location";
const ETAG: &str = "ETag";
const REPLAYED: &str = "Idempotency-Replayed";
const AUTHENTICATE: &str = "WWW-Authenticate";
const RETRY_AFTER: &str = "Retry-After";
/// What the path of a projection names.
const PROJECTION: &str = "powerdns";

/// The statuses of problems that an operation may answer with.
fn statuses(path: &str, needs_token: bool, is_get: bool) -> Vec<u16> {
    let mut statuses = vec![400, 408, 414, 429, 431, 500, 503];
    if needs_token {
        statuses.extend([401, 403]);
    }
    if path.contains('{') {
        statuses.push(404);
    }
    if is_get {
        statuses.extend([406, 412]);
    } else {
        statuses.extend([409, 412, 413, 415, 422]);
    }
    statuses.sort_unstable();
    statuses
}

/// The name under which a status stands among the components.
fn name_of(status: u16) -> String {
    format!("Problem{status}")
}

/// Every problem, by status, for the components.
pub fn problems() -> impl Iterator<Item = (String, Response)> {
    CODES.iter().map(|(status, codes)| (name_of(*status), problem(*status, codes)))
}

fn problem(status: u16, codes: &[&str]) -> Response {
    let types: Vec<String> = codes.iter().map(|code| format!("`{}`", type_of(code))).collect();
    let narrower = if status == 422 { "; the fault's own code where all faults share one" } else { "" };
    let code = codes.first().copied().unwrap_or_default();
    let mut example = json!({
        "type": type_of(code), "title": code.replace('_', " "), "status": status, "code": code,
        "detail": "what is wrong, for people", "request_id": sample::ID,
    });
    if status == 422 {
        let fault = json!({"pointer": "/records/0", "code": code, "detail": "what is wrong there"});
        example["errors"] = json!([fault]);
    }
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).example(Some(example));
    let mut response = ResponseBuilder::new()
        .description(format!("A problem (RFC 9457). Types: {}{narrower}", types.join(", ")))
        .content("application/problem+json", content.build())
        .header_ref(REQUEST_ID, header(REQUEST_ID));
    if matches!(status, 429 | 503) {
        response = response.header_ref(RETRY_AFTER, header(RETRY_AFTER));
    }
    if status == 401 {
        response = response.header_ref(AUTHENTICATE, header(AUTHENTICATE));
    }
    response.build()
}

/// The headers of answers, by name, for the components.
pub fn headers() -> impl Iterator<Item = (String, Header)> {
    let text = |told: &str, example: &str| {
        let kind = ObjectBuilder::new().schema_type(Type::String).build();
        let header = HeaderBuilder::new().schema(Some(kind)).description(Some(told));
        header.example(Some(json!(example))).build()
    };
    let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).build();
    let seconds = HeaderBuilder::new().schema(Some(seconds)).example(Some(json!(1)));
    let all = [
        (REQUEST_ID, text("The id of the request, as it stands in logs and events", sample::ID)),
        (LOCATION, text("Where what was made is, or the operation", "/api/operations/…")),
        (ETAG, text("The entity tag, where what is answered has one", "\"7\"")),
        (REPLAYED, text("`true` where the answer is that of an earlier request", "true")),
        (AUTHENTICATE, text("How to show who asks", "Bearer")),
        (RETRY_AFTER, seconds.description(Some("Seconds until it is worth a try")).build()),
    ];
    all.into_iter().map(|(name, header)| (name.to_owned(), header))
}

fn header(name: &str) -> Ref {
    Ref::new(format!("#/components/headers/{name}"))
}

/// Completes one operation.
pub fn complete(operation: &mut Operation, path: &str, needs_token: bool, is_get: bool) {
    for status in statuses(path, needs_token, is_get) {
        let answers = &mut operation.responses.responses;
        answers
            .entry(status.to_string())
            .or_insert_with(|| RefOr::Ref(Ref::from_response_name(name_of(status))));
    }
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        let mut add = |name: &str| {
            response.headers.insert(name.to_owned(), RefOr::Ref(header(name)));
        };
        add(REQUEST_ID);
        if !status.starts_with('2') {
            continue;
        }
        if matches!(status.as_str(), "201" | "202") {
            add(LOCATION);
        }
        if status != "204" {
            add(ETAG);
        }
        if !is_get {
            add(REPLAYED);
        }
        if response.description.is_empty() {
            response.description = told(status).to_owned();
        }
    }
    name_values(operation, path);
}

fn told(status: &str) -> &'static str {
    match status {
        "201" => "It was made",
        "202" => "It is durable; the operation tells how far it has come",
        "204" => "It is done",
        _ => "What was asked for, or what it has become",
    }
}

fn name_values(operation: &mut Operation, path: &str) {
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(parameter) = parameter else { continue };
        if parameter.parameter_in != ParameterIn::Path {
            continue;
        }
        let id = IDS.iter().find(|(begin, _)| parameter.name == "id" && path.starts_with(begin));
        let projection = path.starts_with("/api/projections/").then_some(&("name", PROJECTION));
        let named = IN_PATHS.iter().find(|(name, _)| *name == parameter.name);
        let Some((_, value)) = id.or(projection).or(named) else { continue };
        if let Some(RefOr::T(Schema::Object(kind))) = &mut parameter.schema {
            kind.examples = vec![json!(value)];
        }
    }
}

/// Gives every JSON that is sent or answered an example, made from its schema, where it has none.
pub fn exemplify(api: &mut OpenApi) -> serde_json::Result<()> {
    let document = serde_json::to_value(&*api)?;
    for item in api.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
        for operation in operations.into_iter().flatten() {
            if let Some(RefOr::T(body)) = &mut operation.request_body {
                body.content.iter_mut().try_for_each(|(media, one)| example(&document, media, one, true))?;
            }
            let answers = operation.responses.responses.iter_mut().filter(|(status, _)| *status != "default");
            for (_, answer) in answers {
                let RefOr::T(answer) = answer else { continue };
                answer
                    .content
                    .iter_mut()
                    .try_for_each(|(media, one)| example(&document, media, one, false))?;
            }
        }
    }
    Ok(())
}

fn example(
    document: &Value,
    media: &str,
    content: &mut RefOr<Content>,
    sent: bool,
) -> serde_json::Result<()> {
    let RefOr::T(content) = content else { return Ok(()) };
    let schema: Option<&RefOr<Schema>> = content.schema.as_ref();
    if let (true, None, Some(schema)) = (media.ends_with("json"), &content.example, schema) {
        let schema = serde_json::to_value(schema)?;
        content.example = Some(sample::of(document, &schema, sent));
    }
    Ok(())
}
