//! `headwater status`: what is wrong now.

use anyhow::Result;

use super::Console;
use super::http::Call;
use super::output::{data, parts};

/// For the help of the command.
pub const EXAMPLES: &str = "Examples:
  headwater status
  headwater status --json | jq .";

/// Runs it.
pub async fn run(console: &Console) -> Result<()> {
    let answer = console.api.send(&Call::get(&["status"])?).await?;
    if console.json {
        return Ok(data(answer.text.trim_end())?);
    }
    Ok(data(parts(&answer.json()?, &[]))?)
}
