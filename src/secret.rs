//! A value that must never be shown.
//!
//! A [`Secret`] has neither `Debug`, `Display`, `Serialize` nor `PartialEq`, so it cannot slip into a log line, an
//! error, an event or a snapshot; whoever needs the text says [`Secret::expose`]. The memory is wiped on drop.

use std::path::Path;

use anyhow::{Context, Result, bail};
use zeroize::Zeroizing;

/// The longest secret file that is read. A larger file is a mistake, not a secret.
const SECRET_FILE_MAX_BYTES: u64 = 64 * 1024;

/// A secret text: a token, a password, a connection URL with one in it.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a text over.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// A new random secret of 256 bits in lower-case hex, safe inside URLs, SQL literals and configuration files.
    pub fn generate() -> Self {
        Self::new(hex::encode(rand::random::<[u8; 32]>()))
    }

    /// The text itself. Every caller of this is a place to look at in a review.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Reads a secret from a file; the line end that editors add is not part of it.
    pub fn read(path: &Path) -> Result<Self> {
        let size = std::fs::metadata(path)
            .with_context(|| format!("cannot read the secret file {}", path.display()))?
            .len();
        if size > SECRET_FILE_MAX_BYTES {
            bail!("the secret file {} is larger than {SECRET_FILE_MAX_BYTES} bytes", path.display());
        }
        let text = Zeroizing::new(
            std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the secret file {}", path.display()))?,
        );
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            bail!("the secret file {} is empty", path.display());
        }
        Ok(Self::new(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_file_loses_its_line_end_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, " hw_x \r\n").unwrap();
        assert_eq!(Secret::read(&file).unwrap().expose(), " hw_x ");
        std::fs::write(&file, "\n").unwrap();
        assert!(Secret::read(&file).is_err());
    }
}
