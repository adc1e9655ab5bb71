//! The house rules that no compiler checks: which crate may know which, sizes, heads, and words.
//!
//! Every failing test names each place at once. The source is formatted by rustfmt (`make check` sees to it), so a
//! function ends at the first line that closes a brace at the indentation of its head.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Who may depend on whom inside the workspace.
const ALLOWED_PATH_DEPENDENCIES: &[(&str, &str)] = &[
    ("headwater", "headwater-events"),
    ("headwater", "headwater-projections"),
    ("headwater", "headwater-edge-wire"),
    ("headwater-projections", "headwater-events"),
    ("headwater-projections", "headwater-edge-wire"),
    ("headwater-edge", "headwater-edge-wire"),
];
/// The longest file.
const FILE_MAX_LINES: usize = 500;
/// The longest function, from its head to its closing brace.
const FUNCTION_MAX_LINES: usize = 80;
/// What a string literal begins with when it is a statement.
const STATEMENTS: &[&str] = &[
    "SELECT ",
    "INSERT INTO ",
    "UPDATE ",
    "DELETE FROM ",
    "WITH ",
    "CREATE ",
    "ALTER ",
    "DROP ",
    "TRUNCATE ",
    "COPY ",
    "LOCK TABLE ",
    "LISTEN ",
    "NOTIFY ",
    "GRANT ",
    "REVOKE ",
];

/// Words that have no place in this repository. Each is put together here, so that this file does not hold it.
fn unwanted_words() -> Vec<String> {
    [
        ["TO", "DO"],
        ["FIX", "ME"],
        ["todo", "!("],
        ["unimple", "mented!("],
        ["dbg", "!("],
        ["/wo", "rk/"],
        ["crates", ".io"],
        ["pypi", ".org"],
        ["npmjs", ".org"],
        ["lorem ", "ipsum"],
    ]
    .iter()
    .map(|parts| parts.concat())
    .collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file under version control or about to be, with its text. Binary files are left out.
fn texts() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    walk(root(), &mut files);
    files
        .into_iter()
        .filter_map(|path| {
            let text = String::from_utf8(std::fs::read(&path).unwrap()).ok()?;
            Some((path.strip_prefix(root()).unwrap().to_owned(), text))
        })
        .collect()
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().unwrap();
        let is_made = (dir == root() && name.starts_with("target"))
            || (name.starts_with('.') && name != ".ci")
            || name == "node_modules";
        if kind.is_dir() && !is_made {
            walk(&entry.path(), files);
        } else if kind.is_file() && name != "Cargo.lock" && name != ".git" && name != "LICENSE" {
            files.push(entry.path());
        }
    }
}

/// The Rust files with their lines; `true` in front of each line that is not part of a test.
fn sources() -> Vec<(PathBuf, Vec<(bool, String)>)> {
    texts()
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|(path, text)| {
            let lines = mark_tests(&path, &text);
            (path, lines)
        })
        .collect()
}

fn mark_tests(path: &Path, text: &str) -> Vec<(bool, String)> {
    let is_test_file = path
        .components()
        .any(|part| ["tests", "benches"].iter().any(|dir| part.as_os_str() == *dir))
        || path.file_stem().is_some_and(|stem| stem == "tests" || stem.to_string_lossy().ends_with("_tests"));
    let mut closing: Option<String> = None;
    let mut pending = false;
    let mut marked = Vec::new();
    for line in text.lines() {
        let indent: String = line.chars().take_while(|character| *character == ' ').collect();
        if line.trim() == "#[cfg(test)]" {
            pending = true;
        }
        let in_test = is_test_file || pending || closing.is_some();
        marked.push((!in_test, line.to_owned()));
        if closing.as_ref().is_some_and(|closing| line == closing) {
            closing = None;
        } else if pending && !line.trim_start().starts_with("#[") {
            pending = false;
            if line.trim_end().ends_with('{') && closing.is_none() {
                closing = Some(format!("{indent}}}"));
            }
        }
    }
    marked
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn crates_know_only_what_the_design_allows() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let on = dependency["name"].as_str().unwrap();
            if !dependency["path"].is_null() && !ALLOWED_PATH_DEPENDENCIES.contains(&(name, on)) {
                found.push(format!("{name} depends on {on}"));
            }
        }
    }
    assert_none("path dependencies that the design does not have", &found);
}

#[test]
fn every_file_says_what_it_is_and_is_short() {
    let mut found = Vec::new();
    for (path, lines) in sources() {
        if !lines.first().is_some_and(|(_, line)| line.starts_with("//! ")) {
            found.push(format!("{}: no //! head", path.display()));
        }
        if lines.len() > FILE_MAX_LINES {
            found.push(format!("{}: {} lines, at most {FILE_MAX_LINES}", path.display(), lines.len()));
        }
    }
    assert_none("files", &found);
}

#[test]
fn every_function_is_short() {
    let mut found = Vec::new();
    for (path, lines) in sources() {
        for (index, (_, line)) in lines.iter().enumerate() {
            let code = line.trim_start();
            if !is_function_head(code) {
                continue;
            }
            let closing = format!("{}}}", &line[..line.len() - code.len()]);
            let length = lines[index..].iter().position(|(_, line)| *line == closing).unwrap_or(0) + 1;
            if length > FUNCTION_MAX_LINES {
                found.push(format!("{}:{}: {length} lines: {code}", path.display(), index + 1));
            }
        }
    }
    assert_none("functions longer than allowed", &found);
}

/// A head whose body follows; one that ends with a semicolon or on its own line has none worth counting.
fn is_function_head(code: &str) -> bool {
    let before = ["pub(crate) ", "pub(super) ", "pub ", "const ", "async ", "extern \"C\" "];
    let mut rest = code;
    while let Some(shorter) = before.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = shorter;
    }
    rest.starts_with("fn ") && !code.ends_with(';') && !code.ends_with('}')
}

#[test]
fn nothing_but_a_test_panics_on_purpose() {
    let mut found = Vec::new();
    for (path, lines) in sources() {
        for (index, (is_code, line)) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if *is_code && [".unwrap()", ".expect(\"", "panic!("].iter().any(|word| code.contains(word)) {
                found.push(format!("{}:{}: {}", path.display(), index + 1, line.trim()));
            }
        }
    }
    assert_none("return an error that says what to do next instead", &found);
}

#[test]
fn sql_stands_in_its_own_files() {
    let mut found = Vec::new();
    for (path, lines) in sources() {
        if path.file_name().is_some_and(|name| name == "sql.rs") {
            continue;
        }
        for (index, (is_code, line)) in lines.iter().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            let begins = |literal: &str| STATEMENTS.iter().any(|statement| literal.starts_with(statement));
            // A literal over several lines has its statement at the start of a line, any other one after a quote.
            let is_statement =
                begins(line.trim_start()) || line.split('"').skip(1).any(|piece| begins(piece.trim_start()));
            if *is_code && !is_comment && is_statement {
                found.push(format!("{}:{}: {}", path.display(), index + 1, line.trim()));
            }
        }
    }
    assert_none("move these statements into a file named sql.rs", &found);
}

#[test]
fn no_unwanted_word() {
    let mut found = BTreeSet::new();
    for (path, text) in texts() {
        for (index, line) in text.lines().enumerate() {
            if let Some(word) = unwanted_words().iter().find(|word| line.contains(word.as_str())) {
                found.insert(format!("{}:{}: {word}", path.display(), index + 1));
            }
        }
    }
    assert_none("words that have no place here", &Vec::from_iter(found));
}
