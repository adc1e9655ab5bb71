//! `headwater admin`: users and tokens, made directly on the control database, for the time when nobody has a token
//! yet, and a new identity for a log that was restored. What is made is printed alone on stdout.

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand as Admin;
use headwater_events::event::Labels;
use headwater_events::ids::{TenantId, TokenId, UserId};
use headwater_events::manager::Managing;
use headwater_events::people::TokenLimits;
use headwater_events::time::Timestamp;
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::rotate;
use crate::command::{Aside, Command, Meta, Outcome};
use crate::config::{Config, Unusable};
use crate::edge::add_signing_key;
use crate::mail::MailAddress;
use crate::people::digest::DigestKeys;
use crate::people::password;
use crate::query::accounts::{self, TenantFilter};
use crate::secret::Secret;
use crate::serve::Log;
use crate::store::renew_log_id;
use crate::token;
use crate::vault::Vault;

/// Octets of a password that are read, at most: more than any has.
const PASSWORD_MAX_BYTES: usize = 4_096;

/// What can be made.
#[derive(Subcommand)]
pub enum AdminCommand {
    /// Make a user and print its id
    #[command(after_help = "Examples:
  headwater admin create-user ann@example.com --tenant acme
  headwater admin create-user root@example.com --admin --password-file /root/password")]
    CreateUser {
        /// Its mail address
        email: MailAddress,
        /// Administrator of the platform
        #[arg(long)]
        admin: bool,
        /// Make it a member of this tenant, which is made if there is none of the name
        #[arg(long, value_name = "NAME")]
        tenant: Option<String>,
        /// The file that holds its password, 12 to 256 characters; `-` for standard input
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        /// Print {"id": …}
        #[arg(long)]
        json: bool,
    },
    /// Make a token for a user and print it
    #[command(
        after_help = "Examples:\n  headwater admin create-token ann@example.com --name ci --expires-in 30d"
    )]
    CreateToken {
        /// The user's mail address
        email: MailAddress,
        /// What the token is called
        #[arg(long)]
        name: String,
        /// When it stops working: 90m, 12h, 30d
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires_in: Option<Duration>,
        /// Print {"id": …, "token": …}
        #[arg(long)]
        json: bool,
    },
    /// Give a user another password: the way back in. Every session of the user ends
    #[command(after_help = "Examples:
  headwater admin set-password ann@example.com < password
  headwater admin set-password ann@example.com --enable --password-file /root/password")]
    SetPassword {
        /// The user's mail address
        email: MailAddress,
        /// The file that holds the password, 12 to 256 characters; `-` for standard input
        #[arg(long, value_name = "FILE", default_value = "-")]
        password_file: PathBuf,
        /// Let the user in again, should it be disabled
        #[arg(long)]
        enable: bool,
        /// Print {"id": …}
        #[arg(long)]
        json: bool,
    },
    /// Seal everything under the newest key of the secret key file
    ///
    /// It may be interrupted and begun again, while other processes run. Every host needs the file with the new key
    /// before.
    #[command(after_help = rotate::EXAMPLES)]
    RotateKeys(rotate::RotateArgs),
    /// Give the log a new identity, after a restore that lost events, and print it
    ///
    /// Every reader of the event stream is told to begin anew. Zones on the DNS clusters are not touched.
    #[command(after_help = RENEW_EXAMPLES)]
    RenewLogId {
        /// Print {"log_id": …}
        #[arg(long)]
        json: bool,
    },
    /// Add a key to those that sign what edges are told, and print its id
    ///
    /// Every running process knows it at once, and edges take it over with their next page. It signs in place of the
    /// former one as soon as every enabled edge has said that it pins it; the former ones stay good.
    #[command(after_help = "Examples:
  headwater admin rotate-signing-key
  headwater --config /etc/headwater/headwater.toml admin rotate-signing-key --json")]
    RotateSigningKey {
        /// Print {"key": …, "public": …, "waits_for": […]}
        #[arg(long)]
        json: bool,
    },
}

/// How the new identity of a log is asked for.
const RENEW_EXAMPLES: &str = "Examples:
  headwater admin renew-log-id
  headwater --config /etc/headwater/headwater.toml admin renew-log-id --json";

fn duration(text: &str) -> Result<Duration, String> {
    let fault = || format!("{text:?} is not a time such as 90m, 12h or 30d");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(fault)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(fault()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(fault)?;
    if seconds == 0 { Err(fault()) } else { Ok(Duration::from_secs(seconds)) }
}

/// Runs one of them.
///
/// # Errors
/// When it is refused or the database does not answer.
pub async fn run(file: Option<&Path>, command: AdminCommand) -> Result<()> {
    let config = Config::load(file)?;
    let log = Log::open(&config).await?;
    let command = match command {
        AdminCommand::RotateKeys(args) => {
            let done = rotate::run(&log.pool, &config, args).await;
            log.close().await;
            return done;
        }
        command => command,
    };
    let made = match command {
        AdminCommand::RotateSigningKey { json } => rotate_signing_key(&log, &config, json).await,
        command => match DigestKeys::load(&log.pool, &config).await {
            Ok(keys) => make(&log, &keys, command).await,
            Err(error) => Err(error.into()),
        },
    };
    log.close().await;
    let (alone, whole) = made?;
    match whole {
        Some(whole) => println!("{whole}"),
        None => println!("{}", alone.expose()),
    }
    Ok(())
}

async fn rotate_signing_key(log: &Log, config: &Config, json: bool) -> Result<(Secret, Option<Value>)> {
    let vault = Vault::open(config)?;
    let added = add_signing_key(&log.pool, &vault).await;
    let (public, waits_for) = added.context("the keys that sign stay as they are")?;
    let key = public.id().to_string();
    if waits_for.is_empty() {
        tracing::warn!(%key, "the new key signs from now on");
    } else {
        let edges = waits_for.join(", ");
        tracing::warn!(%key, %edges, "the new key signs once these edges have said that they pin it");
    }
    let whole = json.then(|| json!({"key": key, "public": public.to_string(), "waits_for": waits_for}));
    Ok((Secret::new(key), whole))
}

/// What to print alone, and the JSON when that was asked for.
async fn make(log: &Log, keys: &DigestKeys, command: AdminCommand) -> Result<(Secret, Option<Value>)> {
    match command {
        AdminCommand::CreateUser { email, admin, tenant, password_file, json } => {
            // Before the user exists, so that a password that cannot be taken leaves none behind.
            let verifier = password_file.as_deref().map(read_password).transpose()?;
            let id = create_user(log, &email, admin).await?;
            if let Some(verifier) = verifier {
                set_password(log, id, verifier).await?;
            }
            if let Some(name) = tenant {
                let tenant = tenant_by_name(log, &name).await?;
                submit(log, Admin::AddMember { tenant, user: id, role: None }, Aside::Nothing).await?;
            }
            Ok((Secret::new(id.to_string()), json.then(|| json!({"id": id}))))
        }
        AdminCommand::CreateToken { email, name, expires_in, json } => {
            let user = accounts::user_by_email(&log.pool, email.as_str()).await?;
            let user = user.with_context(|| format!("there is no user {email}: make it with create-user"))?;
            let secret = token::generate();
            let expires_at = expires_in.map(|span| log.clock.now().plus(span));
            let id = create_token(log, keys, user.id, name, expires_at, &secret).await?;
            let whole = json.then(|| json!({"id": id, "token": secret.expose()}));
            Ok((secret, whole))
        }
        AdminCommand::SetPassword { email, password_file, enable, json } => {
            let verifier = read_password(&password_file)?;
            let user = accounts::user_by_email(&log.pool, email.as_str()).await?;
            let user = user.with_context(|| format!("there is no user {email}: make it with create-user"))?;
            if enable {
                let command = Admin::SetUserEnabled { user: user.id, enabled: true };
                submit(log, command, Aside::Nothing).await?;
            } else if !user.enabled {
                tracing::warn!("{email} is disabled, and may not come in before it is enabled: --enable");
            }
            set_password(log, user.id, verifier).await?;
            Ok((Secret::new(user.id.to_string()), json.then(|| json!({"id": user.id}))))
        }
        // It has its own way.
        AdminCommand::RotateKeys(_) => bail!("keys are rotated elsewhere"),
        AdminCommand::RenewLogId { json } => {
            let id = renew_log_id(&log.pool).await.context("the log keeps its identity")?;
            tracing::warn!(log = %id, "the log has a new identity: readers of its events begin anew");
            Ok((Secret::new(id.to_string()), json.then(|| json!({"log_id": id}))))
        }
        AdminCommand::RotateSigningKey { .. } => bail!("this needs the secret key file"),
    }
}

/// Makes a user.
///
/// # Errors
/// When it is refused or the database does not answer.
pub(super) async fn create_user(log: &Log, email: &MailAddress, admin: bool) -> Result<UserId> {
    let id = UserId::from_uuid(Uuid::now_v7());
    let aside = Aside::Person { user: id, email: email.as_str().to_owned() };
    submit(log, Admin::CreateUser { id, admin }, aside).await?;
    Ok(id)
}

/// Reads a password, from standard input where the file is `-`, and hashes it.
///
/// # Errors
/// When it cannot be read, or must not be one; every fault is named.
pub(super) fn read_password(file: &Path) -> Result<Secret> {
    let password = if file == Path::new("-") {
        let mut text = Zeroizing::new(String::new());
        let most = u64::try_from(PASSWORD_MAX_BYTES).unwrap_or(u64::MAX);
        std::io::stdin().lock().take(most).read_to_string(&mut text).context("cannot read the password")?;
        Secret::new(text.trim_end_matches(['\r', '\n']).to_owned())
    } else {
        Secret::read(file)?
    };
    let faults: Vec<String> = password::faults("", &password).into_iter().map(|fault| fault.detail).collect();
    if !faults.is_empty() {
        return Err(Unusable(format!("this cannot be a password: {}", faults.join("; "))).into());
    }
    Ok(password::hash_now(&password)?)
}

/// Gives a user another password; what it had open ends.
///
/// # Errors
/// When it is refused or the database does not answer.
pub(super) async fn set_password(log: &Log, user: UserId, verifier: Secret) -> Result<()> {
    let aside = Aside::Password { user, verifier, keep: None };
    submit(log, Admin::SetPassword { user }, aside).await.map(|_| ())
}

/// Makes a token of this secret.
///
/// # Errors
/// When it is refused or the database does not answer.
pub(super) async fn create_token(
    log: &Log,
    keys: &DigestKeys,
    user: UserId,
    name: String,
    expires_at: Option<Timestamp>,
    secret: &Secret,
) -> Result<TokenId> {
    let Some(hash) = token::hash(secret.expose()) else { bail!("this is not a token of ours") };
    let token = TokenId::from_uuid(Uuid::now_v7());
    let aside = Aside::TokenSecret { token, user, hash: keys.stored(hash.bytes()) };
    let (limits, managing) = (TokenLimits::default(), Managing::default());
    let command = Admin::CreateToken { user, token, name, expires_at, scopes: None, limits, managing };
    submit(log, command, aside).await?;
    Ok(token)
}

/// The tenant of this name; it is made if there is none.
///
/// # Errors
/// When it is refused or the database does not answer.
pub(super) async fn tenant_by_name(log: &Log, name: &str) -> Result<TenantId> {
    let filter = TenantFilter { name: Some(name), ..TenantFilter::default() };
    if let Some(found) = accounts::tenants_page(&log.pool, filter, None, 1).await?.first() {
        return Ok(found.id);
    }
    create_tenant(log, TenantId::from_uuid(Uuid::now_v7()), name).await
}

/// Makes a tenant with this id.
///
/// # Errors
/// When it is refused or the database does not answer.
pub(super) async fn create_tenant(log: &Log, id: TenantId, name: &str) -> Result<TenantId> {
    let command = Admin::CreateTenant { id, name: name.to_owned(), labels: Labels::new(), external_id: None };
    submit(log, command, Aside::Nothing).await?;
    Ok(id)
}

/// Submits a command as the control plane itself.
///
/// # Errors
/// When it is refused or the database does not answer.
pub(super) async fn submit(log: &Log, command: Admin, aside: Aside) -> Result<Outcome> {
    let command = Command::Admin { command, aside };
    Ok(log.commit.submit(Caller::system(), command, Meta::internal()).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(duration("90m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(duration("30d"), Ok(Duration::from_secs(2_592_000)));
        for bad in ["", "5", "d", "0s", "-1h", "1é", "99999999999999999999d"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
