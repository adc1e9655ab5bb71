//! The rows of the table, shown as they come and written to `target/bench.json`.

use serde::Serialize;
use std::path::Path;

/// What a row is to reach.
#[derive(Debug, Clone, Copy)]
pub enum Goal {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

/// One row.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    value: f64,
    unit: String,
    goal: Option<String>,
    met: Option<bool>,
    note: String,
}

/// The table.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// Adds a row and shows it.
    pub fn row(&mut self, name: &str, value: f64, unit: &str, goal: Option<Goal>, note: impl Into<String>) {
        let (text, met) = match goal {
            None => (None, None),
            Some(Goal::AtLeast(bound)) => (Some(format!(">= {bound}")), Some(value >= bound)),
            Some(Goal::AtMost(bound)) => (Some(format!("<= {bound}")), Some(value <= bound)),
        };
        let value = (value * 1000.0).round() / 1000.0;
        let row = Row { name: name.into(), value, unit: unit.into(), goal: text, met, note: note.into() };
        eprintln!("bench: {}", line(&row));
        self.rows.push(row);
    }

    /// Prints the table and writes it for programs.
    pub fn finish(&self, target: &Path) -> anyhow::Result<()> {
        println!("| row | value | goal | met | note |\n| --- | --- | --- | --- | --- |");
        for row in &self.rows {
            println!("{}", line(row));
        }
        std::fs::write(target.join("bench.json"), serde_json::to_string_pretty(&self.rows)?)?;
        Ok(())
    }
}

fn line(row: &Row) -> String {
    let met = row.met.map_or("", |met| if met { "yes" } else { "NO" });
    let goal = row.goal.as_deref().unwrap_or("");
    format!("| {} | {} {} | {goal} | {met} | {} |", row.name, row.value, row.unit, row.note)
}

/// The median; the list is sorted by it.
pub fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}

/// A quantile by the nearest rank; the list is sorted by it.
pub fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = ((values.len() as f64 * q).ceil() as usize).clamp(1, values.len().max(1));
    values.get(rank - 1).copied().unwrap_or(f64::NAN)
}
