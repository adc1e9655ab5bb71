//! Speaking to dnsdist: its own program checks a configuration and speaks the protocol of the console. What must hold:
//! what it printed is read, since its exit code is 0 even when a command failed; and no word of ours is lost in silence.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::plan::{self, Running};

/// How long dnsdist may take for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The console of a running dnsdist.
pub(super) struct Console<'c> {
    pub(super) program: &'c Path,
    /// The file with its key.
    pub(super) config: &'c Path,
    pub(super) address: SocketAddr,
}

/// What came back.
pub(super) enum Heard {
    /// Nobody listens there.
    Silence,
    /// What it printed.
    Said(String),
}

impl Console<'_> {
    /// Says one thing.
    pub(super) async fn tell(&self, command: &str) -> Result<Heard> {
        // The program tries for long where nobody is.
        let Ok(listening) = TcpStream::connect(self.address).await else { return Ok(Heard::Silence) };
        drop(listening);
        let address = self.address.to_string();
        let arguments = [Path::new("-C"), self.config, Path::new("-c"), Path::new(&address), Path::new("-e")];
        let output = run(Command::new(self.program).args(arguments).arg(command)).await?;
        let said = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        if !output.status.success() || said.starts_with("Error") {
            bail!("the dnsdist at {address} refuses: {}", detail(&output, &said));
        }
        Ok(Heard::Said(said))
    }

    /// Says what is answered by `done`.
    pub(super) async fn done(&self, command: &str) -> Result<()> {
        match self.tell(command).await? {
            Heard::Said(said) if said == "done" => Ok(()),
            Heard::Said(said) => bail!("the dnsdist at {} answers {said:?}", self.address),
            Heard::Silence => bail!("the dnsdist at {} went away", self.address),
        }
    }

    /// The servers that it has.
    pub(super) async fn servers(&self) -> Result<Vec<Running>> {
        let Heard::Said(said) = self.tell(plan::SERVERS).await? else {
            bail!("the dnsdist at {} went away", self.address)
        };
        plan::running(&said).with_context(|| format!("the dnsdist at {} answers {said:?}", self.address))
    }
}

/// Whether dnsdist accepts a configuration.
pub(super) async fn check(program: &Path, config: &Path) -> Result<()> {
    let output = run(Command::new(program).arg("--check-config").arg("-C").arg(config)).await?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        bail!("dnsdist refuses its configuration: {}", detail(&output, said.trim()));
    }
    Ok(())
}

async fn run(command: &mut Command) -> Result<Output> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    tokio::time::timeout(ANSWER_LIMIT, output)
        .await
        .with_context(|| format!("dnsdist does not answer within {} s", ANSWER_LIMIT.as_secs()))?
        .context("cannot run dnsdist")
}

fn detail(output: &Output, said: &str) -> String {
    let told = String::from_utf8_lossy(&output.stderr);
    [said, told.trim()].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
}
