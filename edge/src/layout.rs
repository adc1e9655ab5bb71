//! Where things lie in the state directory.

use std::path::{Path, PathBuf};

use headwater_edge_wire::ids::CellNumber;

/// The state directory of one edge.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The directory at this path.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// How a file in it is called when somebody is told of it.
    pub fn name(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    /// Keys, certificate, token and pins: of the agent alone.
    pub fn identity(&self) -> PathBuf {
        self.root.join("identity")
    }

    /// The artifacts, each under its checksum.
    pub fn artifacts(&self) -> PathBuf {
        self.root.join("artifacts")
    }

    /// The journal of what is to be served.
    pub fn index(&self) -> PathBuf {
        self.root.join("index")
    }

    /// Where work in progress lies; emptied at every start.
    pub fn staging(&self) -> PathBuf {
        self.root.join("staging")
    }

    /// A cell.
    pub fn cell(&self, cell: CellNumber) -> PathBuf {
        self.root.join(format!("cell-{cell}"))
    }

    /// What `headwater-edge status` shows.
    pub fn status(&self) -> PathBuf {
        self.root.join("status.json")
    }

    /// Held by the one agent that runs.
    pub fn lock(&self) -> PathBuf {
        self.root.join("agent.lock")
    }
}
