//! A directory of BIND master files, one for each zone. A file is called after its zone (`example.com`,
//! `example.com.zone`, `db.example.com`); where its name says none, its first `$ORIGIN` or its SOA does. A zone in a
//! subdirectory has that one's name for an account. Links are not followed, so nothing outside of the directory is read.

use super::super::room::Room;
use super::{Listed, Listing, Place, SourceError};
use headwater_events::dns::DomainName;
use headwater_events::migration::{Carried, IMPORT_ZONES_MAX_COUNT, Refused, SourceFault, carry_text};
use headwater_events::zonetext::{self, Faulty, RECORDS_MAX_COUNT, TEXT_MAX_BYTES};
use nix::fcntl::OFlag;
use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Directories above a file, at most.
const DEPTH_MAX: usize = 4;
/// Octets at the beginning of a file that are looked at for its name.
const NAMED_WITHIN_BYTES: u64 = 16 * 1024;
/// What stands behind the name of a zone.
const SUFFIXES: [&str; 4] = [".zone", ".db", ".txt", ".hosts"];
/// What is no zone, by its end.
const OTHERS: [&str; 5] = [".jnl", ".jbk", ".conf", ".key", ".private"];

/// The directory.
pub struct Archive {
    path: PathBuf,
}

fn io(path: &Path, error: &std::io::Error) -> SourceError {
    SourceError::Unusable(format!("{} cannot be read on the machine of the server: {error}", path.display()))
}

impl Archive {
    pub(super) fn open(path: &str) -> Result<Self, SourceError> {
        let path = PathBuf::from(path);
        let found = std::fs::metadata(&path).map_err(|error| io(&path, &error))?;
        if !found.is_dir() {
            return Err(SourceError::Unusable(format!("{} is no directory", path.display())));
        }
        Ok(Self { path })
    }

    pub(super) async fn list(&self) -> Result<Listing, SourceError> {
        let root = self.path.clone();
        let walked = tokio::task::spawn_blocking(move || {
            let mut zones = Vec::new();
            walk(&root, &root, 0, &mut zones)?;
            refuse_twins(&mut zones);
            Ok(Listing { zones, notes: Vec::new() })
        });
        walked.await.map_err(|_| SourceError::Away("the directory could not be read".to_owned()))?
    }

    pub(super) async fn load(
        &self,
        one: &Listed,
        name: DomainName,
        room: &mut Room,
    ) -> Result<Result<Carried, Refused>, SourceError> {
        let Place::File(path) = one.place.clone() else {
            return Err(SourceError::Zone("it is no file".to_owned()));
        };
        let size = std::fs::symlink_metadata(&path).map_or(0, |found| found.len());
        room.bytes(size).await;
        let read = tokio::task::spawn_blocking(move || {
            let most = u64::try_from(TEXT_MAX_BYTES).unwrap_or(u64::MAX) + 1;
            let text = text(&path, most).map_err(|error| SourceError::Zone(error.to_string()))?;
            Ok(zonetext::read(&text, &name, RECORDS_MAX_COUNT).map(carry_text).map_err(refused))
        });
        read.await.map_err(|_| SourceError::Zone("the file could not be read".to_owned()))?
    }
}

/// The beginning of a file that is none but a file.
fn text(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    // It was no link when the directory was read; it must not have become one. A pipe must not be waited for.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no file"));
    }
    let mut text = Vec::new();
    file.take(most).read_to_end(&mut text)?;
    Ok(text)
}

fn refused(faulty: Faulty) -> Refused {
    let fault = |one: zonetext::LineFault| SourceFault {
        line: Some(one.line),
        record: None,
        code: one.code.to_owned(),
        detail: one.detail,
    };
    Refused { total: faulty.total, faults: faulty.faults.into_iter().map(fault).collect() }
}

fn walk(root: &Path, dir: &Path, depth: usize, zones: &mut Vec<Listed>) -> Result<(), SourceError> {
    for entry in std::fs::read_dir(dir).map_err(|error| io(dir, &error))? {
        let entry = entry.map_err(|error| io(dir, &error))?;
        let (path, file) = (entry.path(), entry.file_name());
        let found = entry.metadata().map_err(|error| io(&path, &error))?;
        let below = path.strip_prefix(root).unwrap_or(&path);
        let called = below.to_string_lossy().into_owned();
        let Some(file) = file.to_str() else {
            zones.push(unnamed(called, path, "invalid_name", "the name of the file is not UTF-8"));
            continue;
        };
        if file.starts_with('.') || OTHERS.iter().any(|end| file.ends_with(end)) {
            continue;
        }
        if found.is_symlink() {
            zones.push(unnamed(called, path, "link", "it is a link, and those are not followed"));
        } else if found.is_dir() && depth < DEPTH_MAX {
            walk(root, &path, depth + 1, zones)?;
        } else if found.is_file() {
            let account = below.parent().map(|parent| parent.to_string_lossy().into_owned());
            let at = found.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            let marker = at.map(|at| format!("{}.{:09} {}", at.as_secs(), at.subsec_nanos(), found.len()));
            zones.push(Listed {
                marker,
                account: account.unwrap_or_default(),
                ..of_file(called, path, file)
            });
        } else {
            zones.push(unnamed(called, path, "no_file", "it is neither a file nor a directory of files"));
        }
        if zones.len() > IMPORT_ZONES_MAX_COUNT {
            return Err(SourceError::Unusable(format!("it holds more than {IMPORT_ZONES_MAX_COUNT} files")));
        }
    }
    Ok(())
}

fn unnamed(called: String, path: PathBuf, code: &'static str, why: &str) -> Listed {
    listed(called, path, Err((code, why.to_owned())))
}

fn listed(called: String, path: PathBuf, name: Result<DomainName, (&'static str, String)>) -> Listed {
    Listed {
        called,
        name,
        account: String::new(),
        kind: "file".to_owned(),
        marker: None,
        beside: Vec::new(),
        signed: false,
        place: Place::File(path),
    }
}

fn of_file(called: String, path: PathBuf, file: &str) -> Listed {
    let by_file = by_name(file);
    // A name of one label is more likely to be that of the file than that of the zone.
    let name = match by_file.clone().filter(|name| name.labels().count() > 1) {
        Some(name) => Some(name),
        None => match text(&path, NAMED_WITHIN_BYTES) {
            Ok(text) => by_text(&String::from_utf8_lossy(&text)).or(by_file),
            Err(error) => return unnamed(called, path, "unreadable", &error.to_string()),
        },
    };
    let why = "neither its name nor its text says which zone it is: call it after the zone, such as example.com.zone";
    listed(called, path, name.ok_or_else(|| ("unnamed", why.to_owned())))
}

fn by_name(file: &str) -> Option<DomainName> {
    let file = file.strip_prefix("db.").unwrap_or(file);
    let name = SUFFIXES.iter().find_map(|suffix| file.strip_suffix(suffix)).unwrap_or(file);
    // A file cannot have the slash of a classless reverse zone in its name.
    DomainName::parse(&name.replace("%2F", "/").replace("%2f", "/").replace("=2F", "/")).ok()
}

/// The first `$ORIGIN`, or the owner of the SOA.
fn by_text(text: &str) -> Option<DomainName> {
    for line in text.lines() {
        let line = line.split(';').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if first.eq_ignore_ascii_case("$ORIGIN") {
            if let Some(name) = words.next().and_then(|name| DomainName::parse(name).ok()) {
                return Some(name);
            }
        } else if words.any(|word| word.eq_ignore_ascii_case("SOA")) {
            return first.strip_suffix('.').and_then(|name| DomainName::parse(name).ok());
        }
    }
    None
}

/// Two files of one zone: which is meant nobody knows, so neither is. What has no name is not called like a zone that
/// another file is.
fn refuse_twins(zones: &mut [Listed]) {
    let mut seen: HashMap<DomainName, Vec<usize>> = HashMap::new();
    for (index, one) in zones.iter().enumerate() {
        if let Ok(name) = &one.name {
            seen.entry(name.clone()).or_default().push(index);
        }
    }
    for (name, twins) in seen.into_iter().filter(|(_, twins)| twins.len() > 1) {
        for index in twins {
            if let Some(one) = zones.get_mut(index) {
                one.name = Err(("twice", format!("there is more than one file of {name}")));
            }
        }
    }
    let named: HashSet<String> =
        zones.iter().filter_map(|one| one.name.as_ref().ok()).map(ToString::to_string).collect();
    for one in zones.iter_mut().filter(|one| one.name.is_err() && named.contains(&one.called)) {
        one.called = format!("./{}", one.called);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_named_by_its_file_or_by_its_text() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        file("a.test", "");
        file("db.b.test", "");
        file("acme/c.test.zone", "");
        file("0%2F25.2.0.192.in-addr.arpa.db", "");
        file("zone7", "; x\n$TTL 60\n$ORIGIN d.test.\n");
        file("zone8", "e.test. IN SOA a. b. 1 2 3 4 5\n");
        file("zone9.txt", "@ IN SOA a. b. 1 2 3 4 5\n");
        file("b.test.db", "");
        file(".hidden", "");
        file("b.test.jnl", "");
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("f.test")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("g.test")).unwrap();
        file("g.test.zone", "");
        let mut zones = Vec::new();
        walk(dir.path(), dir.path(), 0, &mut zones).unwrap();
        refuse_twins(&mut zones);
        zones.sort_by(|one, other| one.called.cmp(&other.called));
        let told: Vec<String> = zones
            .iter()
            .map(|one| {
                let name = one.name.as_ref().map_or_else(|(code, _)| (*code).to_owned(), ToString::to_string);
                format!("{} {name} {}", one.called, one.account).trim_end().to_owned()
            })
            .collect();
        assert_eq!(
            told,
            [
                "./g.test link",
                "0%2F25.2.0.192.in-addr.arpa.db 0/25.2.0.192.in-addr.arpa",
                "a.test a.test",
                "acme/c.test.zone c.test acme",
                "b.test.db twice",
                "db.b.test twice",
                "f.test link",
                "g.test.zone g.test",
                "zone7 d.test",
                "zone8 e.test",
                "zone9.txt zone9",
            ]
        );
        assert!(text(&dir.path().join("f.test"), 10).is_err());
    }
}
