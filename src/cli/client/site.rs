//! `headwater hostname`, `headwater cache`, `headwater purge`: what edges serve of a domain.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::error::ClientError;
use super::http::Call;
use super::list::{self, ListArgs};
use super::mutate::{Change, Say, carry_out};
use super::output::Column;
use super::{Console, read_input, show_one};

const COLUMNS: &[Column] = &[
    ("NAME", "/name"),
    ("SCHEME", "/origin/scheme"),
    ("ORIGIN", "/origin/host"),
    ("PORT", "/origin/port"),
    ("BACKUP", "/backup/origin/host"),
    ("CHANGED", "/changed/at"),
];

const PURGES: &[Column] = &[
    ("ID", "/id"),
    ("TYPE", "/type"),
    ("EPOCH", "/epoch"),
    ("STATE", "/state"),
    ("REQUESTED", "/requested_at"),
];

/// For the help of `purge`.
pub const PURGE_EXAMPLES: &str = "Examples:
  headwater purge example.com --wait
  headwater purge example.com --list";

/// What can be done with proxied names.
#[derive(Subcommand)]
pub enum HostnameCommand {
    /// Lists the proxied names of a domain
    #[command(after_help = "Examples:
  headwater hostname list example.com")]
    List {
        /// The domain
        domain: String,
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Shows one proxied name
    #[command(after_help = "Examples:
  headwater hostname get example.com www --json")]
    Get(Key),
    /// Proxies a name, in place of how it was proxied before
    #[command(after_help = "Examples:
  headwater hostname put example.com www --origin http://origin.example.org --wait
  headwater hostname put example.com @ --origin https://origin.example.org:8443 --sni origin.example.org
  headwater hostname put example.com shop --file shop.json --dry-run

A file holds the whole body: origin, and if wanted backup and health; - is stdin.")]
    Put(PutArgs),
    /// Proxies a name no longer
    #[command(after_help = "Examples:
  headwater hostname delete example.com www --wait")]
    Delete {
        /// Which.
        #[command(flatten)]
        key: Key,
        /// How it is changed.
        #[command(flatten)]
        change: Change,
    },
}

/// Which name.
#[derive(Args)]
pub struct Key {
    /// The domain
    domain: String,
    /// The name: www, @ for the domain itself, * for a wildcard
    name: String,
}

impl Key {
    fn call(&self, method: Method) -> Result<Call> {
        Call::new(method, &["domains", &self.domain, "hostnames", &self.name])
    }

    fn shown(&self) -> String {
        format!("{} in {}", self.name, self.domain)
    }
}

/// How a name is proxied.
#[derive(Args)]
pub struct PutArgs {
    #[command(flatten)]
    key: Key,
    /// Where its content comes from: http:// or https://, a name or an address, perhaps a port
    #[arg(long, value_name = "URL", required_unless_present = "file", conflicts_with = "file")]
    origin: Option<String>,
    /// What is sent as Host [default: the name]
    #[arg(long, value_name = "HOST", requires = "origin")]
    host_header: Option<String>,
    /// The name that the origin's certificate is checked for
    #[arg(long, value_name = "NAME", requires = "origin")]
    sni: Option<String>,
    /// Does not check the origin's certificate
    #[arg(long, requires = "origin")]
    no_verify_tls: bool,
    /// Lets connections be upgraded
    #[arg(long, requires = "origin")]
    websocket: bool,
    /// The whole body as JSON; - is stdin
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only if it is not proxied yet; else exit 3
    #[arg(long, conflicts_with = "if_match")]
    create_only: bool,
    #[command(flatten)]
    change: Change,
}

impl PutArgs {
    fn body(&self) -> Result<Value> {
        if let Some(file) = &self.file {
            let text = read_input(file)?;
            return serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()));
        }
        let mut origin = parts(self.origin.as_deref().unwrap_or_default())?;
        if let Some(host) = &self.host_header {
            origin.insert("host_header".into(), json!(host));
        }
        if let Some(sni) = &self.sni {
            origin.insert("sni".into(), json!(sni));
        }
        if self.no_verify_tls {
            origin.insert("verify_tls".into(), json!(false));
        }
        if self.websocket {
            origin.insert("websocket".into(), json!(true));
        }
        Ok(json!({"origin": origin}))
    }
}

/// Scheme, host and port of an origin. What they may be is the API's to say.
fn parts(url: &str) -> Result<Map<String, Value>> {
    let wrong = || {
        ClientError::usage(format!(
            "--origin {url}: write it as http://origin.example.org or https://[2001:db8::1]:8443"
        ))
    };
    let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(wrong)?)),
        None => match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    if host.is_empty() || host.contains('/') {
        return Err(wrong());
    }
    let mut origin = Map::from_iter([("scheme".to_owned(), json!(scheme)), ("host".to_owned(), json!(host))]);
    if let Some(port) = port {
        origin.insert("port".into(), json!(port.parse::<u32>().map_err(|_| wrong())?));
    }
    Ok(origin)
}

/// What can be done with how answers are kept.
#[derive(Subcommand)]
pub enum CacheCommand {
    /// Shows how answers of a domain are kept
    #[command(after_help = "Examples:
  headwater cache get example.com")]
    Get {
        /// The domain
        domain: String,
    },
    /// Changes how answers of a domain are kept
    #[command(after_help = "Examples:
  headwater cache set example.com edge_ttl_seconds=600 --wait
  headwater cache set example.com enabled=false browser_ttl_seconds=default")]
    Set {
        /// The domain
        domain: String,
        /// Fields: enabled, edge_ttl_seconds, browser_ttl_seconds, respect_origin_headers, maximum_object_bytes,
        /// stale_if_error_seconds, stale_while_revalidate_seconds; default gives a field its default back
        #[arg(required = true, value_name = "FIELD=VALUE")]
        fields: Vec<String>,
        /// How it is changed.
        #[command(flatten)]
        change: Change,
    },
}

/// A purge of everything.
#[derive(Args)]
pub struct PurgeArgs {
    /// The domain
    domain: String,
    /// Lists earlier purges instead
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    page: ListArgs,
    #[command(flatten)]
    change: Change,
}

/// Runs `hostname`.
pub async fn run_hostname(console: &Console, command: HostnameCommand) -> Result<()> {
    match command {
        HostnameCommand::List { domain, list } => {
            list::show(console, Call::get(&["domains", &domain, "hostnames"])?, COLUMNS, &list).await
        }
        HostnameCommand::Get(key) => show_one(console, key.call(Method::GET)?).await,
        HostnameCommand::Put(args) => {
            let mut call = args.key.call(Method::PUT)?.json(&args.body()?);
            if args.create_only {
                call = call.header("if-none-match", "*")?;
            }
            carry_out(console, call, &args.change, Say::Outcome(&args.key.shown())).await
        }
        HostnameCommand::Delete { key, change } => {
            carry_out(console, key.call(Method::DELETE)?, &change, Say::Outcome(&key.shown())).await
        }
    }
}

/// Runs `cache`.
pub async fn run_cache(console: &Console, command: CacheCommand) -> Result<()> {
    match command {
        CacheCommand::Get { domain } => show_one(console, Call::get(&["domains", &domain, "cache"])?).await,
        CacheCommand::Set { domain, fields, change } => {
            let mut patch = Map::new();
            for field in &fields {
                let wrong = || ClientError::usage(format!("{field}: write it as field=value"));
                let (name, value) = field.split_once('=').ok_or_else(wrong)?;
                let value = match value {
                    "default" => Value::Null,
                    // Numbers and flags are JSON as they are; what is neither is the API's to refuse.
                    other => serde_json::from_str(other).unwrap_or_else(|_| json!(other)),
                };
                patch.insert(name.to_owned(), value);
            }
            let call = Call::new(Method::PATCH, &["domains", &domain, "cache"])?.json(&Value::Object(patch));
            carry_out(console, call, &change, Say::Outcome(&domain)).await
        }
    }
}

/// Runs `purge`.
pub async fn run_purge(console: &Console, args: PurgeArgs) -> Result<()> {
    let path = ["domains", &args.domain, "purges"];
    if args.list {
        return list::show(console, Call::get(&path)?, PURGES, &args.page).await;
    }
    let call = Call::post(&path)?.json(&json!({"type": "all"}));
    carry_out(console, call, &args.change, Say::Outcome(&args.domain)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_written_as_urls() {
        let of = |url| parts(url).map(Value::Object).ok();
        assert_eq!(of("http://o.example"), Some(json!({"scheme": "http", "host": "o.example"})));
        assert_eq!(
            of("https://o.example:8443/"),
            Some(json!({"scheme": "https", "host": "o.example", "port": 8443}))
        );
        assert_eq!(
            of("http://[2001:db8::1]:80"),
            Some(json!({"scheme": "http", "host": "2001:db8::1", "port": 80}))
        );
        for bad in ["o.example", "http://", "http://o.example/path", "http://o:x", "http://[::1]x"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
