//! The agent's program, which is of another package than these tests.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The agent's program. It stands beside that of this package; cargo makes it where it is not there or old.
pub fn edge_program() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let beside = PathBuf::from(env!("CARGO_BIN_EXE_headwater")).with_file_name("headwater-edge");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--package", "headwater-edge", "--features", "failpoints"]);
        let made = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        beside
    };
    MADE.get_or_init(make).clone()
}
