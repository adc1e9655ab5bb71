//! `demo.json`: what a script needs to find its way around a running demo.
//!
//! It holds secrets, so it is of mode 0600; it is replaced in one step, so a reader sees it whole; it is there only
//! while everything in it answers or is being started again. Keys whose part does not exist are left out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::home::{Account, Home};
use super::ledger;
use super::process::ProcessId;

/// What is known before any process runs, and the processes.
pub struct Manifest {
    home: Home,
    inner: Mutex<Inner>,
}

struct Inner {
    /// The names in the order in which the parts are to be stopped.
    order: Vec<String>,
    processes: BTreeMap<String, ProcessId>,
    /// Everything but the processes; `None` until all of it answers.
    facts: Option<serde_json::Map<String, Value>>,
}

impl Manifest {
    /// A manifest that is not published yet. `order` names the parts in the order in which they are to be stopped.
    pub fn new(home: Home, order: Vec<String>) -> Self {
        let inner = Inner { order, processes: BTreeMap::new(), facts: None };
        Self { home, inner: Mutex::new(inner) }
    }

    /// Notes a process that was started, on disk before anything else happens.
    pub fn started(&self, name: &str, id: ProcessId) -> Result<()> {
        // A panic elsewhere leaves nothing half-written in here.
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.processes.insert(name.to_owned(), id);
        let known = inner.order.iter().filter_map(|name| Some((name.clone(), *inner.processes.get(name)?)));
        ledger::record_processes(&self.home, known.collect())?;
        inner.write(&self.file())
    }

    /// The process of a part, as it was noted last.
    pub fn process(&self, name: &str) -> Option<ProcessId> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).processes.get(name).copied()
    }

    /// Publishes it: everything answers.
    pub fn publish(&self, facts: serde_json::Map<String, Value>) -> Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.facts = Some(facts);
        inner.write(&self.file())
    }

    /// Takes it back: the demo stops.
    pub fn withdraw(&self) -> Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.facts = None;
        ledger::remove_if_there(&self.file())
    }

    /// The file.
    pub fn file(&self) -> PathBuf {
        self.home.dir().join("demo.json")
    }
}

impl Inner {
    fn write(&self, file: &std::path::Path) -> Result<()> {
        let Some(facts) = &self.facts else { return Ok(()) };
        let mut all = facts.clone();
        all.insert("ready".to_owned(), json!(true));
        let mut pids: serde_json::Map<String, Value> =
            self.processes.iter().map(|(name, id)| (name.clone(), json!(id.pid()))).collect();
        pids.insert("demo".to_owned(), json!(std::process::id()));
        all.insert("pids".to_owned(), Value::Object(pids));
        let text = serde_json::to_string_pretty(&all).context("cannot write JSON")?;
        Account::Own.write_file(file, &(text + "\n"))
    }
}
