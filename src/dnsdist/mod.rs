//! The dnsdist of a host, made from the DNS clusters: what it reads when it starts, and what it is told while it runs.
//! What must hold: the file is replaced whole and only by one that dnsdist itself accepts; what can be told to the
//! running one is told, so that no question is lost; what cannot is said, and the old state goes on serving.

mod console;
mod plan;
mod render;

#[cfg(test)]
mod tests;

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::secret::Secret;

pub use crate::config::DnsdistSettings;
use console::{Console, Heard};

/// Where Debian puts the program.
pub const PROGRAM: &str = "/usr/bin/dnsdist";
/// How long what is added may take to be up before what it replaces goes, or stays.
const UP_LIMIT: Duration = Duration::from_secs(5);
/// How long a server may take for what it was asked; dnsdist itself gives it two seconds.
const ANSWERED_LIMIT: Duration = Duration::from_secs(3);
/// How often it is looked at meanwhile.
const UP_PAUSE: Duration = Duration::from_millis(100);
/// Octets of the console's key.
const KEY_BYTES: usize = 32;

/// A DNS cluster, as dnsdist asks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// Its name.
    pub name: String,
    /// Where its PowerDNS answers.
    pub address: SocketAddr,
    /// The listener that leads to it alone.
    pub front: Option<SocketAddr>,
    /// Whether it is deployed to; one that is not has old answers.
    pub enabled: bool,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// File and running dnsdist were as they should be.
    Unchanged,
    /// The running one was told; so many servers came and went.
    Told {
        /// Servers that came.
        added: usize,
        /// Servers that went.
        removed: usize,
    },
    /// The file is new, and no dnsdist answers at the console: it reads the file when it starts.
    NotRunning,
    /// The file is new, and what differs can only be read at a start.
    NeedsRestart,
    /// None of the wanted servers came up: those that there were stay too.
    Kept {
        /// How many.
        count: usize,
    },
}

/// The configuration as text, without a console.
///
/// # Errors
/// Every fault of the settings and clusters together.
pub fn configuration(settings: &DnsdistSettings, backends: &[Backend]) -> Result<String> {
    sound(settings, backends)?;
    Ok(render::configuration(settings, backends, None))
}

fn sound(settings: &DnsdistSettings, backends: &[Backend]) -> Result<()> {
    match render::faults(settings, backends).as_slice() {
        [] => Ok(()),
        faults => bail!("{}", faults.join("\n")),
    }
}

/// Makes file and running dnsdist what they should be.
///
/// # Errors
/// When the configuration is refused, by us or by dnsdist, or cannot be written. What runs goes on as it is.
pub async fn apply(program: &Path, settings: &DnsdistSettings, backends: &[Backend]) -> Result<Applied> {
    sound(settings, backends)?;
    let key = console_key(&settings.console_key_file)?;
    let text = render::configuration(settings, backends, Some(key.expose()));
    let is_new = replace(program, &settings.config_file, &text).await?;
    let console = Console { program, config: &settings.config_file, address: settings.console };
    let fixed = match console.tell(plan::FIXED).await? {
        Heard::Silence => return Ok(Applied::NotRunning),
        Heard::Said(said) => said,
    };
    let fixed_now = render::digest(&render::fixed(settings, backends));
    let told = tell(&console, settings, backends, is_new).await?;
    match fixed.strip_prefix("fixed ") == Some(&fixed_now) {
        true => Ok(told),
        false => Ok(Applied::NeedsRestart),
    }
}

async fn tell(
    console: &Console<'_>,
    settings: &DnsdistSettings,
    backends: &[Backend],
    is_new: bool,
) -> Result<Applied> {
    console.done(&format!("{} return 'done'", render::acl(settings))).await?;
    let wanted = plan::wanted(settings, backends);
    let todo = plan::plan(&wanted, &console.servers().await?);
    for one in &todo.add {
        console.done(&one.command()).await?;
    }
    let deadline = tokio::time::Instant::now() + UP_LIMIT;
    while !todo.remove.is_empty() && !plan::may_remove(&wanted, &console.servers().await?) {
        if tokio::time::Instant::now() >= deadline {
            return Ok(Applied::Kept { count: todo.remove.len() });
        }
        tokio::time::sleep(UP_PAUSE).await;
    }
    for one in &todo.remove {
        console.done(&one.retirement()).await?;
    }
    for one in &todo.remove {
        answered(console, one).await?;
        console.done(&one.removal()).await?;
    }
    match (todo.add.len(), todo.remove.len()) {
        (0, 0) if !is_new => Ok(Applied::Unchanged),
        (added, removed) => Ok(Applied::Told { added, removed }),
    }
}

/// Waits until a server that gets no more questions has answered what it was asked, or will not.
async fn answered(console: &Console<'_>, server: &plan::Running) -> Result<()> {
    let deadline = tokio::time::Instant::now() + ANSWERED_LIMIT;
    while tokio::time::Instant::now() < deadline {
        let Heard::Said(said) = console.tell(&server.outstanding()).await? else {
            bail!("dnsdist went away")
        };
        match plan::outstanding(&said) {
            Some(0) => return Ok(()),
            Some(_) => tokio::time::sleep(UP_PAUSE).await,
            None => bail!("dnsdist answers {said:?}"),
        }
    }
    Ok(())
}

/// The console's key, made when there is none.
fn console_key(file: &Path) -> Result<Secret> {
    if file.exists() {
        return Secret::read(file);
    }
    let key = Secret::new(STANDARD.encode(rand::random::<[u8; KEY_BYTES]>()));
    let mut options = std::fs::OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(file);
    let mut opened = opened.with_context(|| format!("cannot make the console's key {}", file.display()))?;
    opened.write_all(key.expose().as_bytes()).context("cannot write the console's key")?;
    opened.sync_all().context("cannot write the console's key")?;
    Ok(key)
}

/// Replaces the file by one that dnsdist accepts; says whether it differs from the one that was there.
async fn replace(program: &Path, file: &Path, text: &str) -> Result<bool> {
    let before = match std::fs::read_to_string(file) {
        Ok(before) if before == text => return Ok(false),
        Ok(_) => std::fs::metadata(file).ok(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    let directory = file.parent().context("config_file in [dnsdist] names no file")?;
    let mut new = tempfile::NamedTempFile::new_in(directory)
        .with_context(|| format!("cannot write into {}", directory.display()))?;
    new.write_all(text.as_bytes()).context("cannot write the configuration of dnsdist")?;
    // It holds the console's key. Who could read the old one can read the new one.
    let mode = before.as_ref().map_or(0o600, |before| before.mode() & 0o770);
    new.as_file().set_permissions(std::fs::Permissions::from_mode(mode))?;
    if let Some(before) = &before {
        chown(new.path(), Some(before.uid()), Some(before.gid()))
            .with_context(|| format!("cannot give {} the owner of the old one", new.path().display()))?;
    }
    new.as_file().sync_all().context("cannot write the configuration of dnsdist")?;
    console::check(program, new.path()).await?;
    new.persist(file).with_context(|| format!("cannot replace {}", file.display()))?;
    std::fs::File::open(directory)
        .and_then(|directory| directory.sync_all())
        .context("cannot write the directory")?;
    Ok(true)
}
