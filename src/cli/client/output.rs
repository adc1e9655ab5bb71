//! What people and programs see: data on stdout, talk on stderr.
//!
//! What must hold: text of the API never reaches a terminal with control characters in it; a reader of stdout that
//! goes away ends the command quietly instead of with a panic.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use comfy_table::{ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

/// How often the progress of a terminal moves.
const TICK_MILLISECONDS: u64 = 120;
/// Numbers of progress are told at most so often where no terminal is.
const PLAIN_PAUSE_SECONDS: u64 = 5;

/// Writes a line of data.
pub fn data(line: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Writes data as it is.
pub fn raw(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Says something to the person who watches.
pub fn talk(line: impl Display) {
    // Nobody is left to be told that stderr is gone.
    let _written = writeln!(io::stderr().lock(), "{line}");
}

/// A text without control characters, which a terminal would obey.
pub fn safe(text: &str) -> String {
    let is_harmless = |character: char| {
        !character.is_control() && !matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_harmless(character) {
            shown.push(character);
        } else {
            shown.extend(character.escape_unicode());
        }
    }
    shown
}

/// A value for people; a list has one line for each of its values.
pub fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => safe(text),
        Some(Value::Bool(yes)) => if *yes { "yes" } else { "no" }.to_owned(),
        Some(Value::Array(values)) => {
            let lines: Vec<String> = values.iter().map(|value| cell(Some(value))).collect();
            lines.join("\n")
        }
        Some(fields @ Value::Object(_)) => {
            let mut pairs = Vec::new();
            collect("", fields, &mut pairs);
            pairs.join(" ")
        }
        Some(number) => number.to_string(),
    }
}

/// What stands in an object, one `key=value` for each value: the keys of objects within it joined by a dot, the values
/// of a list by a comma. What is null is left out.
fn collect(key: &str, value: &Value, pairs: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = safe(name);
                let key = if key.is_empty() { name } else { format!("{key}.{name}") };
                collect(&key, field, pairs);
            }
        }
        Value::Array(values) => {
            let words: Vec<String> = values.iter().map(word).collect();
            pairs.push(format!("{key}={}", words.join(",")));
        }
        scalar => pairs.push(format!("{key}={}", word(scalar))),
    }
}

/// A value within others: what holds a space stands in quotes, an object in brackets.
fn word(value: &Value) -> String {
    let text = cell(Some(value)).replace('\n', ",");
    match value {
        Value::Object(_) => format!("({text})"),
        Value::String(_) if text.contains(' ') && !text.starts_with('"') => format!("\"{text}\""),
        _ => text,
    }
}

/// A column: its title and where its value is.
pub type Column = (&'static str, &'static str);

/// A table with these columns; without rows it is empty.
pub fn table(columns: &[Column], rows: &[Value]) -> String {
    let cells = |row: &Value| -> Vec<String> {
        columns.iter().map(|(_, pointer)| cell(row.pointer(pointer))).collect()
    };
    let titles = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
    plain_table(titles, rows.iter().map(cells).collect())
}

/// A table of texts.
pub fn plain_table(titles: Vec<String>, rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(titles).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// One object: a line for each of its fields.
pub fn object(value: &Value) -> String {
    let Value::Object(fields) = value else { return cell(Some(value)) };
    let width = fields.keys().map(|key| key.chars().count()).max().unwrap_or_default();
    let line = |(key, value): (&String, &Value)| {
        let text = cell(Some(value)).replace('\n', &format!("\n{:width$}  ", ""));
        format!("{:width$}  {text}", safe(key)).trim_end().to_owned()
    };
    fields.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// One object whose lists of objects are tables below it: each with the columns that are named for it, else with the
/// fields that its first row has.
pub fn parts(value: &Value, named: &[(&str, &[Column])]) -> String {
    let Value::Object(fields) = value else { return cell(Some(value)) };
    let is_list =
        |value: &Value| value.as_array().is_some_and(|rows| rows.first().is_some_and(Value::is_object));
    let (lists, rest): (serde_json::Map<_, _>, serde_json::Map<_, _>) =
        fields.clone().into_iter().partition(|(_, value)| is_list(value));
    let mut shown = if rest.is_empty() { Vec::new() } else { vec![object(&Value::Object(rest))] };
    for (name, rows) in &lists {
        let rows = rows.as_array().map_or(&[][..], Vec::as_slice);
        let columns = named.iter().find(|(of, _)| of == name);
        let text = columns.map_or_else(|| table_of(rows), |(_, columns)| table(columns, rows));
        shown.push(format!("{}\n{text}", safe(name)));
    }
    shown.join("\n\n")
}

/// A table with the columns that the first row has.
fn table_of(rows: &[Value]) -> String {
    let Some(Value::Object(first)) = rows.first() else { return String::new() };
    let keys: Vec<&String> = first.keys().collect();
    let titles = keys.iter().map(|key| safe(key).to_uppercase().replace('_', " ")).collect();
    let cells = |row: &Value| keys.iter().map(|key| cell(row.get(key.as_str()))).collect();
    plain_table(titles, rows.iter().map(cells).collect())
}

/// Progress: a bar or a spinner on a terminal, plain lines elsewhere, on stderr both.
pub struct Progress {
    bar: Option<ProgressBar>,
    last: String,
    told: Option<std::time::Instant>,
}

impl Progress {
    /// Begins, with what is being done.
    pub fn new(what: &str) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_message(what.to_owned());
            bar.enable_steady_tick(Duration::from_millis(TICK_MILLISECONDS));
            bar
        });
        Self { bar, last: String::new(), told: None }
    }

    /// Says where it stands. What was said already is not repeated.
    pub fn say(&mut self, text: &str) {
        if self.last == text {
            return;
        }
        text.clone_into(&mut self.last);
        match &self.bar {
            Some(bar) => bar.set_message(text.to_owned()),
            None => talk(text),
        }
    }

    /// Says how much of it is done.
    pub fn count(&mut self, done: u64, total: u64, unit: &str) {
        let Some(bar) = &self.bar else {
            let pause = Duration::from_secs(PLAIN_PAUSE_SECONDS);
            if done >= total || self.told.is_none_or(|told| told.elapsed() >= pause) {
                self.told = Some(std::time::Instant::now());
                self.say(&format!("{done} of {total} {unit}"));
            }
            return;
        };
        if bar.length() != Some(total) {
            bar.set_length(total);
            // The template is a constant; without it the bar looks plainer.
            if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:30}] {pos}/{len} {eta}") {
                bar.set_style(style.progress_chars("=> "));
            }
        }
        bar.set_position(done);
    }

    /// Runs something that writes lines, with the bar out of the way.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_terminal_is_not_told_to_do_anything() {
        assert_eq!(safe("a\u{1b}[2Jb\u{9b}\u{202e}"), "a\\u{1b}[2Jb\\u{9b}\\u{202e}");
        assert_eq!(safe("bücher"), "bücher");
    }

    #[test]
    fn a_table_is_read_by_columns() {
        let rows = [json!({"name": "www", "records": ["192.0.2.1", "192.0.2.2"]}), json!({"name": "@"})];
        let text = table(&[("NAME", "/name"), ("RECORDS", "/records")], &rows);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines, ["NAME  RECORDS", "www   192.0.2.1", "      192.0.2.2", "@"]);
        assert_eq!(table(&[("NAME", "/name")], &[]), "");
    }

    #[test]
    fn no_cell_holds_json() {
        for (value, text) in [
            (
                json!({"ttl": 300, "records": ["192.0.2.1", "192.0.2.2"], "comment": null}),
                "records=192.0.2.1,192.0.2.2 ttl=300",
            ),
            (
                json!({"records": ["\"v=spf1 -all\""], "comment": "no mail"}),
                "comment=\"no mail\" records=\"v=spf1 -all\"",
            ),
            (json!({"actor": {"kind": "user", "id": "x", "token": null}}), "actor.id=x actor.kind=user"),
            (
                json!({"partial": [{"id": "1", "name": "a"}, {"id": "2", "name": "b"}]}),
                "partial=(id=1 name=a),(id=2 name=b)",
            ),
            (json!([{"id": "1"}, {"id": "2"}]), "id=1\nid=2"),
            (json!([["a", "b"], ["c"]]), "a\nb\nc"),
            (json!({"evil\u{1b}": ["\u{1b}[2J"]}), "evil\\u{1b}=\\u{1b}[2J"),
            (json!({}), ""),
        ] {
            let told = cell(Some(&value));
            assert_eq!(told, text);
            assert!(!told.contains(['{', '[']) || told.contains("\\u{1b}"), "{told}");
        }
    }

    #[test]
    fn a_list_of_objects_is_a_table_below() {
        let value = json!({"name": "x", "steps": [{"name": "database", "at": {"ms": 1}}, {"name": "dns"}], "none": []});
        let text = parts(&value, &[("steps", &[("STEP", "/name"), ("MS", "/at/ms")])]);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines, ["name  x", "none", "", "steps", "STEP      MS", "database  1", "dns"]);
        let text = parts(&json!({"lanes": [{"lane_name": "a", "n": 1}]}), &[]);
        assert_eq!(
            text.lines().map(str::trim_end).collect::<Vec<_>>(),
            ["lanes", "LANE NAME  N", "a          1"]
        );
    }

    #[test]
    fn an_object_has_a_line_for_each_field() {
        let text = object(&json!({"id": "x", "labels": {"a": "b"}, "targets": ["one", "two"]}));
        assert_eq!(text, "id       x\nlabels   a=b\ntargets  one\n         two");
    }
}
