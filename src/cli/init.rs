//! `headwater init`: the platform's own tenant, its DNS identity, the first administrator with a token, and a commented
//! configuration where there is none. Run again, it finishes what was left and applies a changed `[dns]`.

use anyhow::{Context, Result, bail};
use clap::Args;
use headwater_events::admin::AdminCommand as Admin;
use headwater_events::dns::DomainName;
use headwater_events::event::DnsIdentity;
use headwater_events::ids::TenantId;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use uuid::Uuid;

use super::admin::{create_tenant, create_token, create_user, read_password, set_password, submit};
use crate::command::Aside;
use crate::config::{CONFIG_VARIABLE, Config, DEFAULT_FILES, HostName};
use crate::mail::MailAddress;
use crate::people::digest::DigestKeys;
use crate::query::accounts::{self, TenantFilter};
use crate::query::domains;
use crate::secret::Secret;
use crate::serve::Log;
use crate::{token, vault};

/// The name of the platform's own tenant.
const PLATFORM_TENANT: &str = "platform";
/// The name of the first administrator's token.
const FIRST_TOKEN: &str = "first";

/// What init may need to know.
#[derive(Args)]
pub struct InitArgs {
    /// The first administrator's mail address, needed while there is none
    #[arg(long, value_name = "EMAIL")]
    admin_email: Option<MailAddress>,
    /// Where the first administrator's token is written (mode 0600)
    #[arg(long, value_name = "FILE", default_value = "admin-token")]
    token_file: PathBuf,
    /// The file that holds the first administrator's password, 12 to 256 characters; without it there is none
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

/// What `[dns]` of the configuration says of the platform.
///
/// # Errors
/// When a name in it cannot be one of the DNS.
pub fn identity(config: &Config) -> Result<DnsIdentity> {
    let dns = &config.dns;
    let name = |name: &HostName| {
        DomainName::parse(name.as_str()).with_context(|| format!("{name} in [dns] cannot be used"))
    };
    Ok(DnsIdentity {
        nameservers: dns.nameservers.iter().map(name).collect::<Result<_>>()?,
        hostmaster: name(&dns.hostmaster)?,
        soa_ttl: dns.soa_ttl,
        ns_ttl: dns.ns_ttl,
        refresh: dns.refresh,
        retry: dns.retry,
        expire: dns.expire,
        minimum: dns.minimum,
    })
}

/// Does what is left to do.
///
/// # Errors
/// When something is missing or refused.
pub async fn run(file: Option<&Path>, args: InitArgs) -> Result<()> {
    if let Some(written) = write_configuration(file)? {
        eprintln!("wrote {}: read it, and name the control database in it", written.display());
        if std::env::var_os("HEADWATER_DATABASE__URL").is_none()
            && std::env::var_os("HEADWATER_DATABASE__URL_FILE").is_none()
        {
            eprintln!("then run `headwater migrate` and `headwater init` again");
            return Ok(());
        }
    }
    let config = Config::load(file)?;
    let wanted = identity(&config)?;
    let keys = &config.secrets.key_file;
    if vault::make(keys).with_context(|| format!("cannot write the secret key file {}", keys.display()))? {
        eprintln!("made the secret key file {}: keep a copy apart from the database's", keys.display());
    }
    let log = Log::open(&config).await?;
    let done = match DigestKeys::load(&log.pool, &config).await {
        Ok(keys) => initialize(&log, &keys, wanted, &args).await,
        Err(error) => Err(error.into()),
    };
    log.close().await;
    done
}

async fn initialize(log: &Log, keys: &DigestKeys, wanted: DnsIdentity, args: &InitArgs) -> Result<()> {
    let drawn = TenantId::from_uuid(Uuid::now_v7());
    submit(log, Admin::InitializePlatform { tenant: drawn }, Aside::Nothing).await?;
    let tenant = domains::platform(&log.pool).await?.tenant.unwrap_or(drawn);
    let filter = TenantFilter { id: Some(tenant), ..TenantFilter::default() };
    if accounts::tenants_page(&log.pool, filter, None, 1).await?.is_empty() {
        create_tenant(log, tenant, PLATFORM_TENANT).await?;
        eprintln!("made the platform's tenant {tenant}");
    }
    submit(log, Admin::CreateSharedPool, Aside::Nothing).await?;
    if submit(log, Admin::SetDnsIdentity(wanted), Aside::Nothing).await?.changed {
        eprintln!("[dns] is in force");
    }
    if accounts::administrators(&log.pool).await? > 0 {
        eprintln!("there is an administrator already");
        return Ok(());
    }
    let Some(email) = &args.admin_email else {
        bail!("there is no administrator yet: name the first one with --admin-email");
    };
    let verifier = args.password_file.as_deref().map(read_password).transpose()?;
    // The file first: whoever is interrupted here finds the token in it once it works.
    let secret = first_token(&args.token_file)?;
    let user = match accounts::user_by_email(&log.pool, email.as_str()).await? {
        Some(user) if user.admin => user.id,
        Some(_) => bail!("{email} is a user but no administrator: name another with --admin-email"),
        None => create_user(log, email, true).await?,
    };
    if let Some(verifier) = verifier {
        set_password(log, user, verifier).await?;
    }
    create_token(log, keys, user, FIRST_TOKEN.to_owned(), None, &secret).await?;
    eprintln!("made the administrator {email}; the token is in {}", args.token_file.display());
    Ok(())
}

/// A new token, written down for its owner alone.
fn first_token(file: &Path) -> Result<Secret> {
    let secret = token::generate();
    let fault = || format!("cannot write the token to {}", file.display());
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let mut options = OpenOptions::new();
    let mut out =
        options.write(true).create(true).truncate(true).mode(0o600).open(&new).with_context(fault)?;
    out.write_all(secret.expose().as_bytes()).and_then(|()| out.write_all(b"\n")).with_context(fault)?;
    out.sync_all().with_context(fault)?;
    std::fs::rename(&new, file).with_context(fault)?;
    Ok(secret)
}

/// Writes a configuration when there is none, and says where.
fn write_configuration(named: Option<&Path>) -> Result<Option<PathBuf>> {
    let from_variable = std::env::var_os(CONFIG_VARIABLE).map(PathBuf::from);
    let file = match named.map(Path::to_owned).or(from_variable) {
        Some(file) => file,
        None if DEFAULT_FILES.iter().any(|file| Path::new(file).exists()) => return Ok(None),
        None => PathBuf::from(DEFAULT_FILES[0]),
    };
    if file.exists() {
        return Ok(None);
    }
    let fault = || format!("cannot write the configuration {}", file.display());
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir).with_context(fault)?;
    }
    let mut options = OpenOptions::new();
    let mut out = options.write(true).create_new(true).mode(0o600).open(&file).with_context(fault)?;
    out.write_all(EXAMPLE.as_bytes()).with_context(fault)?;
    Ok(Some(file))
}

/// The configuration that init writes: every key, commented, at its default.
pub const EXAMPLE: &str = include_str!("headwater.example.toml");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_what_holds_without_it() {
        let plain = Config::parse("", None, []).unwrap_or_else(|error| panic!("{error}"));
        let example = Config::parse(EXAMPLE, None, []).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(identity(&plain).unwrap(), identity(&example).unwrap());
        // With the comment signs of its keys gone it still holds only keys that there are.
        let keys: String =
            EXAMPLE.lines().map(|line| format!("{}\n", line.strip_prefix("#= ").unwrap_or(line))).collect();
        assert!(Config::parse(&keys, None, []).is_ok());
    }

    #[test]
    fn every_key_is_described_with_its_default() {
        let described = include_str!("../../docs/OPERATIONS.md");
        let mut section = "";
        for line in EXAMPLE.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = name;
            }
            let Some((key, default)) = line.strip_prefix("#= ").and_then(|rest| rest.split_once(" = "))
            else {
                continue;
            };
            let begin = format!("| `{section}.{key}` | ");
            let row = described.lines().find_map(|row| row.strip_prefix(&begin));
            let row = row.unwrap_or_else(|| panic!("{section}.{key} is not in docs/OPERATIONS.md"));
            if default.parse::<u64>().is_ok() {
                assert!(row.starts_with(&format!("{default} | ")), "{section}.{key} is {default}, not {row}");
            }
        }
    }
}
