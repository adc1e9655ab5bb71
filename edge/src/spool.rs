//! The lines of a page, on the disk: so that memory holds one at a time.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::disk::{self, At, DiskError, Passing};
use crate::layout::Layout;

/// Where a line lies.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    at: u64,
    length: usize,
}

/// The lines of a page, on the disk.
pub struct Spool {
    path: std::path::PathBuf,
    file: File,
    end: u64,
    _passing: Passing,
}

impl Spool {
    /// One step of the three: begin, add a line, read one.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn create(layout: &Layout) -> Result<Self, DiskError> {
        disk::make_dir(&layout.staging(), disk::PRIVATE_DIR)?;
        let path = layout.staging().join("lines.jsonl");
        let passing = Passing::new(path.clone());
        let file = disk::create(&path, disk::PRIVATE_FILE)?;
        Ok(Self { path, file, end: 0, _passing: passing })
    }

    /// One step of the three: begin, add a line, read one.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn push(&mut self, line: &[u8]) -> Result<Span, DiskError> {
        disk::write(&mut self.file, &self.path, line)?;
        let span = Span { at: self.end, length: line.len() };
        self.end += line.len() as u64;
        Ok(span)
    }

    /// One step of the three: begin, add a line, read one.
    ///
    /// # Errors
    /// When the disk says no.
    pub fn read(&self, span: Span) -> Result<Vec<u8>, DiskError> {
        let mut line = vec![0; span.length];
        self.file.read_exact_at(&mut line, span.at).at("read", &self.path)?;
        Ok(line)
    }
}
