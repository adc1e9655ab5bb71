//! Pure: what the answers of name servers prove. Every server that answers must say so, and at least one does.

use std::collections::BTreeSet;
use std::fmt;

/// What one server of the parent says of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// It is delegated to these names.
    Delegated(BTreeSet<String>),
    /// With authority: to nobody.
    Nobody,
    /// Nothing that counts: no answer, a refusal, an answer without authority.
    Silent,
}

/// What the parent of a domain says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delegation {
    /// Every server that answers names one of the platform's.
    Ours(BTreeSet<String>),
    /// No server that answers does.
    Elsewhere(BTreeSet<String>),
    /// Some do.
    Divided(BTreeSet<String>),
    /// It cannot be told, for this reason.
    Unknown(String),
}

/// What came of a look, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Proven, or delegated here.
    Ok,
    /// Ownership is not proven.
    NotProven,
    /// It is delegated, but not here.
    Elsewhere,
    /// It could not be told.
    Unknown,
}

impl Found {
    /// The name in the API and in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotProven => "not_proven",
            Self::Elsewhere => "elsewhere",
            Self::Unknown => "unknown",
        }
    }
}

impl Delegation {
    /// In a word.
    pub fn found(&self) -> Found {
        match self {
            Self::Ours(_) => Found::Ok,
            Self::Elsewhere(_) => Found::Elsewhere,
            Self::Divided(_) | Self::Unknown(_) => Found::Unknown,
        }
    }

    /// Every name that it is delegated to.
    pub fn servers(&self) -> impl Iterator<Item = &String> {
        let names = match self {
            Self::Ours(names) | Self::Elsewhere(names) | Self::Divided(names) => Some(names),
            Self::Unknown(_) => None,
        };
        names.into_iter().flatten()
    }
}

impl fmt::Display for Delegation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
        match self {
            Self::Ours(names) => write!(f, "the parent delegates it to {}", list(names)),
            Self::Elsewhere(names) if names.is_empty() => f.write_str("the parent delegates it to nobody"),
            Self::Elsewhere(names) => {
                write!(f, "the parent delegates it to {}, none of which is the platform's", list(names))
            }
            Self::Divided(names) => write!(
                f,
                "the servers of the parent do not agree yet: among them they delegate it to {}",
                list(names)
            ),
            Self::Unknown(why) => f.write_str(why),
        }
    }
}

/// What the servers of the parent say together. Those that are silent do not count.
pub fn delegation(ours: &BTreeSet<String>, said: &[Said]) -> Delegation {
    let (mut names, mut here, mut there) = (BTreeSet::new(), 0, 0);
    for one in said {
        match one {
            Said::Delegated(to) => {
                if to.is_disjoint(ours) {
                    there += 1
                } else {
                    here += 1
                }
                names.extend(to.iter().cloned());
            }
            Said::Nobody => there += 1,
            Said::Silent => {}
        }
    }
    match (here, there) {
        (0, 0) => Delegation::Unknown("no name server of the parent answers with authority".to_owned()),
        (_, 0) => Delegation::Ours(names),
        (0, _) => Delegation::Elsewhere(names),
        _ => Delegation::Divided(names),
    }
}

/// Whether a challenge is shown: by every server that answers with authority, and by one at least. None is one that
/// does not answer so.
///
/// # Errors
/// Why not, for people; none where no server answers.
pub fn shown(
    name: &str,
    value: &str,
    answers: &[(String, Option<Vec<String>>)],
) -> Result<(), Option<String>> {
    let mut told = answers.iter().filter_map(|(server, values)| Some((server, values.as_ref()?))).peekable();
    if told.peek().is_none() {
        return Err(None);
    }
    match told.find(|(_, values)| !values.iter().any(|one| one == value)) {
        Some((server, values)) if values.is_empty() => Err(Some(format!("{server} has no TXT at {name}"))),
        Some((server, _)) => Err(Some(format!("{server} has another TXT at {name}, not {value}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn every_server_that_answers_must_say_so() {
        let ours = set(&["ns1.example.net", "ns2.example.net"]);
        let to = |names: &[&str]| Said::Delegated(set(names));
        let (here, mixed) = (to(&["ns1.example.net"]), to(&["ns2.example.net", "ns.other.net"]));
        let there = to(&["ns.other.net"]);
        let rows: [(Vec<Said>, Found); 9] = [
            (vec![], Found::Unknown),
            (vec![Said::Silent, Said::Silent], Found::Unknown),
            (vec![here.clone(), Said::Silent], Found::Ok),
            (vec![here.clone(), mixed.clone()], Found::Ok),
            (vec![here.clone(), there.clone()], Found::Unknown),
            (vec![here, Said::Nobody], Found::Unknown),
            (vec![there.clone(), Said::Silent], Found::Elsewhere),
            (vec![there, Said::Nobody], Found::Elsewhere),
            (vec![Said::Nobody], Found::Elsewhere),
        ];
        for (said, found) in rows {
            assert_eq!(delegation(&ours, &said).found(), found, "{said:?}");
        }
    }

    #[test]
    fn every_server_with_authority_must_show_the_challenge() {
        let with = |values: &[&str]| Some(values.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
        let rows = [
            (vec![], Err(None)),
            (vec![None, None], Err(None)),
            (vec![with(&["x", "v"]), None], Ok(())),
            (vec![with(&["v"]), with(&["v"])], Ok(())),
            // One of them dangles, and whoever holds it is not the owner.
            (vec![with(&["v"]), with(&[])], Err(Some("1 has no TXT at n".to_owned()))),
            (vec![with(&["w"])], Err(Some("0 has another TXT at n, not v".to_owned()))),
        ];
        for (answers, expected) in rows {
            let answers: Vec<_> =
                answers.into_iter().enumerate().map(|(index, values)| (index.to_string(), values)).collect();
            assert_eq!(shown("n", "v", &answers), expected, "{answers:?}");
        }
    }
}
