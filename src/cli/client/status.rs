//! `headwater status`: what is wrong now.

use anyhow::Result;
use serde_json::Value;

use super::Console;
use super::http::Call;
use super::output::{cell, data, object, plain_table};

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
    let Value::Object(fields) = answer.json()? else { return Ok(data(answer.text.trim_end())?) };
    let is_list =
        |value: &Value| value.as_array().is_some_and(|rows| rows.first().is_some_and(Value::is_object));
    let (lists, rest): (serde_json::Map<_, _>, serde_json::Map<_, _>) =
        fields.into_iter().partition(|(_, value)| is_list(value));
    if !rest.is_empty() {
        data(object(&Value::Object(rest)))?;
    }
    for (name, rows) in &lists {
        data(format_args!("\n{name}\n{}", table_of(rows.as_array().map_or(&[], Vec::as_slice))))?;
    }
    Ok(())
}

/// A table with the columns that the first row has.
fn table_of(rows: &[Value]) -> String {
    let Some(Value::Object(first)) = rows.first() else { return String::new() };
    let keys: Vec<&String> = first.keys().collect();
    let titles = keys.iter().map(|key| key.to_uppercase().replace('_', " ")).collect();
    let cells = |row: &Value| keys.iter().map(|key| cell(row.get(key.as_str()))).collect();
    plain_table(titles, rows.iter().map(cells).collect())
}
