//! Listings: pages of the API one after the other, as a table or as the JSON of the API.
//!
//! What must hold: memory is that of one page; `--json` has the shape of the API whatever the number of pages,
//! with the items exactly as they came.

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Console;
use super::http::Call;
use super::output::{Column, data, raw, table, talk};

/// The most items of one page.
const PAGE_ITEMS: u64 = 1_000;
/// How much of a history is shown when nobody says how much.
pub const HISTORY_ITEMS: u64 = 50;

/// How much of a list.
#[derive(Args, Clone, Debug, Default)]
pub struct ListArgs {
    /// At most so many items [default: all; 50 of a history]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Goes on where an earlier list ended
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
}

impl ListArgs {
    /// The newest or oldest items of something without an end.
    pub fn of_history(&self) -> Self {
        Self { limit: self.limit.or(Some(HISTORY_ITEMS)), cursor: self.cursor.clone() }
    }
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
    #[serde(default)]
    next: Option<Value>,
}

/// Shows a list that comes in pages.
pub async fn show(console: &Console, call: Call, columns: &[Column], args: &ListArgs) -> Result<()> {
    show_with(console, call, args, |rows| table(columns, rows)).await
}

/// The same with another look.
pub async fn show_with(
    console: &Console,
    call: Call,
    args: &ListArgs,
    look: impl Fn(&[Value]) -> String,
) -> Result<()> {
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut cursor = args.cursor.clone();
    let mut shown = 0_u64;
    if console.json {
        raw(b"{\"items\":[")?;
    }
    let next = loop {
        let page = call.clone().query("limit", left.min(PAGE_ITEMS)).maybe("cursor", cursor.as_ref());
        let answer = console.api.send(&page).await?;
        let page = read_page(&answer.text)?;
        shown = print_page(console, &page, shown, &look)?;
        left = left.saturating_sub(page.items.len() as u64);
        let next = page.next.as_ref().and_then(cursor_text);
        if next.is_none() || left == 0 {
            break next;
        }
        if next == cursor {
            bail!("the API gave the same cursor twice: report this as a fault of the server");
        }
        cursor = next;
    };
    if console.json {
        return Ok(data(format_args!("],\"next\":{}}}", Value::from(next)))?);
    }
    match next {
        Some(next) => talk(format_args!("there is more: go on with --cursor {next}")),
        None if shown == 0 => talk("nothing there"),
        None => {}
    }
    Ok(())
}

/// Shows a short list that comes whole.
pub async fn show_whole(console: &Console, call: Call, columns: &[Column]) -> Result<()> {
    let answer = console.api.send(&call).await?;
    if console.json {
        return Ok(data(answer.text.trim_end())?);
    }
    let page = read_page(&answer.text)?;
    if print_page(console, &page, 0, &|rows| table(columns, rows))? == 0 {
        talk("nothing there");
    }
    Ok(())
}

/// All items of a short list.
pub async fn items(console: &Console, call: Call) -> Result<Vec<Value>> {
    let mut body = console.api.fetch(&call).await?;
    match body.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => Ok(items),
        _ => bail!("the API answered with something that is not a list: check the URL"),
    }
}

fn read_page(text: &str) -> Result<Page<'_>> {
    serde_json::from_str(text).context("the API answered with something that is not a list: check the URL")
}

/// A cursor is a text; the position of a log may be a number.
fn cursor_text(next: &Value) -> Option<String> {
    match next {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Prints the items and gives how many were printed in all.
fn print_page(
    console: &Console,
    page: &Page<'_>,
    shown: u64,
    look: &impl Fn(&[Value]) -> String,
) -> Result<u64> {
    if console.json {
        for (index, item) in page.items.iter().enumerate() {
            let comma = if shown == 0 && index == 0 { "" } else { "," };
            raw(format!("{comma}{item}").as_bytes())?;
        }
    } else {
        let rows: Vec<Value> =
            page.items.iter().map(|item| serde_json::from_str(item.get())).collect::<Result<_, _>>()?;
        let text = look(&rows);
        if !text.is_empty() {
            data(text)?;
        }
    }
    Ok(shown + page.items.len() as u64)
}
