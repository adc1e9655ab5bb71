//! `headwater tls`: what the names of a domain are proven with.
//!
//! What must hold: a private key comes from a file and goes to the API alone; nothing here shows it.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::http::Call;
use super::mutate::{Change, Say, carry_out};
use super::output::{data, object};
use super::{Console, read_input};

/// What every certificate of a file begins with.
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";

/// What can be done with what the names of a domain are proven with.
#[derive(Subcommand)]
pub enum TlsCommand {
    /// Shows the certificate of a domain
    #[command(after_help = "Examples:
  headwater tls show example.com
  headwater tls show example.com --json")]
    Show {
        /// The domain
        domain: String,
    },
    /// Brings a certificate, in place of the one before
    #[command(after_help = "Examples:
  headwater tls set example.com --certificate fullchain.pem --key privkey.pem --wait
  headwater tls set example.com --certificate leaf.pem --chain chain.pem --key privkey.pem --dry-run

The first certificate of --certificate is the leaf; what follows it there is its chain. The key must not be encrypted. It
is sealed before it is stored, and never shown again.")]
    Set(SetArgs),
    /// Takes the certificate of a domain away: TLS is refused from then on
    #[command(after_help = "Examples:
  headwater tls delete example.com --wait")]
    Delete {
        /// The domain
        domain: String,
        /// How it is changed.
        #[command(flatten)]
        change: Change,
    },
}

/// A certificate to bring.
#[derive(Args)]
pub struct SetArgs {
    /// The domain
    domain: String,
    /// The leaf as PEM, perhaps with its chain; - is stdin
    #[arg(long, value_name = "FILE")]
    certificate: PathBuf,
    /// Its private key as PEM; - is stdin
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// What signed the leaf as PEM, from its issuer upwards
    #[arg(long, value_name = "FILE")]
    chain: Option<PathBuf>,
    /// Only if there is none yet; else exit 3
    #[arg(long, conflicts_with = "if_match")]
    create_only: bool,
    #[command(flatten)]
    change: Change,
}

impl SetArgs {
    fn body(&self) -> Result<Value> {
        let certificate = read_input(&self.certificate)?;
        let key = read_input(&self.key)?;
        let mut body = match &self.chain {
            Some(chain) => json!({"certificate_pem": certificate, "chain_pem": read_input(chain)?}),
            None => {
                let (leaf, chain) = parted(&certificate);
                json!({"certificate_pem": leaf, "chain_pem": chain})
            }
        };
        body["private_key_pem"] = json!(key);
        Ok(body)
    }
}

/// The leaf of a file, and what follows it.
fn parted(text: &str) -> (&str, Option<&str>) {
    let second = text.match_indices(BEGIN).nth(1).map(|(at, _)| at);
    match second.and_then(|at| text.split_at_checked(at)) {
        Some((leaf, chain)) => (leaf, Some(chain)),
        None => (text, None),
    }
}

/// Runs `tls`.
pub async fn run(console: &Console, command: TlsCommand) -> Result<()> {
    match command {
        TlsCommand::Show { domain } => show(console, &domain).await,
        TlsCommand::Set(args) => {
            let mut call = call(Method::PUT, &args.domain)?.json(&args.body()?);
            if args.create_only {
                call = call.header("if-none-match", "*")?;
            }
            carry_out(console, call, &args.change, Say::Outcome(&args.domain)).await
        }
        TlsCommand::Delete { domain, change } => {
            carry_out(console, call(Method::DELETE, &domain)?, &change, Say::Outcome(&domain)).await
        }
    }
}

fn call(method: Method, domain: &str) -> Result<Call> {
    Call::new(method, &["domains", domain, "tls", "custom-certificate"])
}

async fn show(console: &Console, domain: &str) -> Result<()> {
    let answer = console.api.send(&Call::get(&["domains", domain, "tls"])?).await?;
    if console.json {
        return Ok(data(answer.text.trim_end())?);
    }
    let mut body = answer.json()?;
    match body.get_mut("certificate").and_then(Value::as_object_mut) {
        Some(certificate) => {
            certificate.remove("chain_pem");
            Ok(data(object(&Value::Object(std::mem::take(certificate))))?)
        }
        None => Ok(data(format_args!("{domain} has no certificate: TLS is refused for its names"))?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_the_leaf_first() {
        let one = format!("{BEGIN}\na\n");
        assert_eq!(parted(&one), (one.as_str(), None));
        let both = format!("subject=x\n{one}{BEGIN}\nb\n{BEGIN}\nc\n");
        let (leaf, chain) = parted(&both);
        assert_eq!(leaf, format!("subject=x\n{one}"));
        assert_eq!(chain.unwrap(), format!("{BEGIN}\nb\n{BEGIN}\nc\n"));
        assert_eq!(parted(""), ("", None));
    }
}
