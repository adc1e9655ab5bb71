//! Reads keys one by one out of the file and the environment, and collects every fault on the way.
//!
//! A key that was read is gone from the tables; what is left in the end is unknown. A fault never shows a value,
//! which may be a secret that landed in the wrong place.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;
use toml::{Table, Value};

use super::types::SecretSource;
use crate::secret::Secret;

/// The variable that names the secret key file, and the key that it stands for.
const SECRET_KEY_VARIABLE: &str = "HEADWATER_SECRET_KEY_FILE";
const SECRET_KEY_SETTING: &str = "HEADWATER_SECRETS__KEY_FILE";
/// What every variable of the configuration begins with.
const PREFIX: &str = "HEADWATER_";
/// What stands between section and key in the name of a variable.
const SEPARATOR: &str = "__";

/// Why a configuration was refused.
#[derive(Debug, Error)]
#[error("{place} cannot be used:\n  {}", faults.join("\n  "))]
pub struct ConfigError {
    place: String,
    faults: Vec<String>,
}

impl ConfigError {
    /// Every fault, each naming its key.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }
}

/// A variable that sets a key.
#[derive(Clone)]
pub struct EnvironmentVariable {
    section: String,
    key: String,
    value: Secret,
}

impl EnvironmentVariable {
    /// Takes `HEADWATER_SECTION__KEY` and its value; any other variable is none of ours.
    pub fn new(name: &str, value: &str) -> Option<Self> {
        // The one name of its own: it is what deployments hand a secret file over by.
        let name = if name == SECRET_KEY_VARIABLE { SECRET_KEY_SETTING } else { name };
        let (section, key) = name.strip_prefix(PREFIX)?.split_once(SEPARATOR)?;
        Some(Self {
            section: section.to_ascii_lowercase(),
            key: key.to_ascii_lowercase(),
            value: Secret::new(value.to_owned()),
        })
    }
}

/// What is left to read, and the faults so far.
pub(super) struct Reader {
    file: Table,
    environment: BTreeMap<(String, String), Secret>,
    faults: Vec<String>,
}

/// A value and where it came from: text from the environment has no type yet.
enum Raw {
    File(Value),
    Environment(Secret),
}

impl Reader {
    pub(super) fn new(text: &str, environment: impl IntoIterator<Item = EnvironmentVariable>) -> Self {
        let mut faults = Vec::new();
        let file = text.parse().unwrap_or_else(|error: toml::de::Error| {
            // The error's own text quotes the line, and with it perhaps a secret.
            let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
            faults.push(format!("line {line} is not TOML: {}", error.message()));
            Table::new()
        });
        let environment = environment
            .into_iter()
            .map(|variable| ((variable.section, variable.key), variable.value))
            .collect();
        Self { file, environment, faults }
    }

    /// Reads one section; every key that `read` leaves is unknown.
    pub(super) fn section<T>(&mut self, name: &'static str, read: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let in_file = match self.file.remove(name) {
            Some(Value::Table(table)) => table,
            Some(_) => {
                self.faults.push(format!("{name} must be a section: [{name}]"));
                Table::new()
            }
            None => Table::new(),
        };
        read(&mut Section { reader: self, name, in_file })
    }

    /// Refuses what has faults; what nobody has read is one.
    pub(super) fn finish(mut self, file: Option<&Path>) -> Result<(), ConfigError> {
        for (name, value) in &self.file {
            self.faults.push(match value {
                Value::Table(_) => format!("[{name}] is an unknown section"),
                _ => format!("{name} is an unknown key; every key stands in a section"),
            });
        }
        for (section, key) in self.environment.keys() {
            let (section, key) = (section.to_ascii_uppercase(), key.to_ascii_uppercase());
            self.faults.push(format!("{PREFIX}{section}{SEPARATOR}{key} is an unknown key"));
        }
        if self.faults.is_empty() {
            return Ok(());
        }
        let place = match file {
            Some(file) => format!("the configuration {}", file.display()),
            None => "the configuration from the environment".to_owned(),
        };
        Err(ConfigError { place, faults: self.faults })
    }
}

/// One section while it is read. What is left when it is dropped is unknown.
pub(super) struct Section<'a> {
    reader: &'a mut Reader,
    name: &'static str,
    in_file: Table,
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        for key in self.in_file.keys() {
            self.reader.faults.push(format!("{}.{key} is an unknown key", self.name));
        }
    }
}

impl Section<'_> {
    /// Notes a fault of a key.
    pub(super) fn fault(&mut self, key: &str, what: impl Display) {
        self.reader.faults.push(format!("{}.{key} {what}", self.name));
    }

    fn take(&mut self, key: &str) -> Option<Raw> {
        let in_file = self.in_file.remove(key);
        let variable = self.reader.environment.remove(&(self.name.to_owned(), key.to_owned()));
        variable.map(Raw::Environment).or(in_file.map(Raw::File))
    }

    fn text(&mut self, key: &str) -> Option<Secret> {
        match self.take(key)? {
            Raw::Environment(text) => Some(text),
            Raw::File(Value::String(text)) => Some(Secret::new(text)),
            Raw::File(_) => {
                self.fault(key, "must be a text in quotes");
                None
            }
        }
    }

    /// A whole number within a range.
    pub(super) fn number(&mut self, key: &str, range: RangeInclusive<u32>, default: u32) -> u32 {
        let number = match self.take(key) {
            None => return default,
            Some(Raw::File(Value::Integer(number))) => Some(number),
            Some(Raw::File(_)) => None,
            Some(Raw::Environment(text)) => text.expose().trim().parse().ok(),
        };
        match number.and_then(|number| u32::try_from(number).ok()).filter(|number| range.contains(number)) {
            Some(number) => number,
            None => {
                let (low, high) = (range.start(), range.end());
                self.fault(key, format_args!("must be a whole number from {low} to {high}"));
                default
            }
        }
    }

    /// `true` or `false`; false when it is left out.
    pub(super) fn flag(&mut self, key: &str) -> bool {
        let flag = match self.take(key) {
            None => return false,
            Some(Raw::File(value)) => value.as_bool(),
            Some(Raw::Environment(text)) => text.expose().trim().parse().ok(),
        };
        flag.unwrap_or_else(|| {
            self.fault(key, "must be true or false");
            false
        })
    }

    /// A duration in whole seconds within a range.
    pub(super) fn seconds(&mut self, key: &str, range: RangeInclusive<u32>, default: u32) -> Duration {
        Duration::from_secs(self.number(key, range, default).into())
    }

    /// A text that has a form.
    pub(super) fn parsed<T>(&mut self, key: &str) -> Option<T>
    where
        T: FromStr,
        T::Err: Display,
    {
        let text = self.text(key)?;
        text.expose().parse().map_err(|error| self.fault(key, format_args!("is wrong: {error}"))).ok()
    }

    /// A list of texts that have a form; in the environment with commas between them.
    pub(super) fn list<T>(&mut self, key: &str) -> Option<Vec<T>>
    where
        T: FromStr,
        T::Err: Display,
    {
        let texts: Option<Vec<String>> = match self.take(key)? {
            Raw::Environment(text) => {
                Some(text.expose().split(',').map(|item| item.trim().to_owned()).collect())
            }
            Raw::File(Value::Array(items)) => {
                items.into_iter().map(|item| item.as_str().map(str::to_owned)).collect()
            }
            Raw::File(_) => None,
        };
        let Some(texts) = texts else {
            self.fault(key, "must be a list of texts");
            return None;
        };
        let mut items = Vec::with_capacity(texts.len());
        for text in texts {
            match text.parse() {
                Ok(item) => items.push(item),
                Err(error) => self.fault(key, format_args!("is wrong: {error}")),
            }
        }
        Some(items)
    }

    /// A path, relative to the directory of the file.
    pub(super) fn path(&mut self, key: &str, base: &Path) -> Option<PathBuf> {
        let text = self.text(key)?;
        if text.expose().is_empty() {
            self.fault(key, "must name a file");
            return None;
        }
        Some(base.join(text.expose()))
    }

    /// A secret, by value or by file. The environment stands above the file, whichever of the two it sets.
    pub(super) fn secret(&mut self, key: &str, file_key: &str, base: &Path) -> Option<SecretSource> {
        let is_set = |section: &Self, key: &str| {
            section.reader.environment.contains_key(&(section.name.to_owned(), key.to_owned()))
        };
        let (by_variable, file_by_variable) = (is_set(self, key), is_set(self, file_key));
        let value = self.text(key);
        let file = self.path(file_key, base);
        match (value, file) {
            (Some(value), None) => Some(SecretSource::Value(value)),
            (None, Some(file)) => Some(SecretSource::File(file)),
            (Some(value), Some(_)) if by_variable && !file_by_variable => Some(SecretSource::Value(value)),
            (Some(_), Some(file)) if file_by_variable && !by_variable => Some(SecretSource::File(file)),
            (Some(_), Some(_)) => {
                self.fault(key, format_args!("and {file_key} are both set; set one of them"));
                None
            }
            (None, None) => None,
        }
    }
}
