//! What a token is limited to: scopes, each with verbs, domains, and for records owner names and types. A scope only
//! takes away; who holds the token decides what there is to take away from.

use crate::dns::{DnsFault, DomainName, OwnerName, RrType};
use crate::reject::Fault;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Scopes of a token, at most.
pub const SCOPES_MAX_COUNT: usize = 20;
/// Domains, names or types of a scope, at most.
pub const SCOPE_MAX_ITEMS: usize = 100;

/// What a scope gives: what a viewer, an editor, or an owner and an administrator may do beyond that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// To read.
    Read,
    /// To change what is served.
    Write,
    /// To manage and to administrate.
    Admin,
}

impl Grant {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Admin];

    /// The name in bodies and events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }

    /// The one of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|grant| grant.name() == name)
    }
}

/// The domains of a scope: `["*"]`, or their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub enum Domains {
    /// Whatever its user has, now and later.
    All,
    /// These alone, not what is hosted below them.
    Named(BTreeSet<DomainName>),
}

/// How all domains are written.
pub const ALL_DOMAINS: &str = "*";

impl TryFrom<Vec<String>> for Domains {
    type Error = DnsFault;

    fn try_from(texts: Vec<String>) -> Result<Self, DnsFault> {
        if texts.iter().any(|text| text == ALL_DOMAINS) {
            return Ok(Self::All);
        }
        texts.iter().map(|text| DomainName::parse(text)).collect::<Result<_, _>>().map(Self::Named)
    }
}

impl From<Domains> for Vec<String> {
    fn from(domains: Domains) -> Self {
        match domains {
            Domains::All => vec![ALL_DOMAINS.to_owned()],
            Domains::Named(names) => names.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Owner names of records: an exact one relative to the domain, or one with `*` as its first or last label, which stands
/// for one label or more. So `*.dyn` is what lies below `dyn`, and `_acme-challenge.*` the challenges of names below the
/// apex.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamePattern {
    text: String,
    /// Labels before those of `middle`, one or more.
    before: bool,
    /// Labels, leftmost first.
    middle: Vec<String>,
    /// Labels after those of `middle`, one or more.
    after: bool,
}

impl NamePattern {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, DnsFault> {
        if text == "*" {
            return Ok(Self { text: text.to_owned(), before: true, middle: Vec::new(), after: false });
        }
        let (before, rest) = text.strip_prefix("*.").map_or((false, text), |rest| (true, rest));
        let (after, rest) = match rest.strip_suffix(".*") {
            // An escaped dot separates nothing.
            Some(kept) if !kept.ends_with('\\') => (true, kept),
            _ if rest == "*" => (true, ""),
            _ => (false, rest),
        };
        if rest.is_empty() && before && after {
            return Ok(Self { text: text.to_owned(), before, middle: Vec::new(), after });
        }
        let owner = OwnerName::relative(rest)?;
        if owner.is_wildcard() || ((before || after) && owner.is_apex()) {
            return Err(DnsFault::name(format!(
                "{text:?}: a * stands at either end, once, for labels of a name"
            )));
        }
        let text = format!("{}{owner}{}", if before { "*." } else { "" }, if after { ".*" } else { "" });
        Ok(Self { text, before, middle: owner.labels().map(str::to_owned).collect(), after })
    }

    /// Whether an owner is one of them.
    pub fn matches(&self, owner: &OwnerName) -> bool {
        let labels: Vec<&str> = owner.labels().collect();
        let fixed = self.middle.len();
        let fits = |window: &[&str]| window.iter().eq(self.middle.iter());
        match (self.before, self.after) {
            (false, false) => fits(&labels),
            (true, false) => labels.len() > fixed && labels.get(labels.len() - fixed..).is_some_and(fits),
            (false, true) => labels.len() > fixed && labels.get(..fixed).is_some_and(fits),
            (true, true) if fixed == 0 => labels.len() >= 2,
            (true, true) => {
                let inner = labels.get(1..labels.len().saturating_sub(1)).unwrap_or_default();
                inner.windows(fixed).any(fits)
            }
        }
    }

    /// Whether every owner of the other is one of these: what is certain to be so.
    fn includes(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        if !other.before && !other.after {
            let owner = if other.middle.is_empty() {
                Ok(OwnerName::apex())
            } else {
                OwnerName::relative(&other.text)
            };
            return owner.is_ok_and(|owner| self.matches(&owner));
        }
        let fixed = self.middle.len();
        match (self.before, self.after) {
            (false, false) => false,
            (true, false) if fixed == 0 => true,
            (true, false) => {
                // What the other fixes at its end ends in these labels, with something before them.
                let end = other.middle.len().checked_sub(fixed).and_then(|at| other.middle.get(at..));
                !other.after
                    && end == Some(self.middle.as_slice())
                    && (other.before || other.middle.len() > fixed)
            }
            (false, true) => {
                let begin = other.middle.get(..fixed);
                !other.before
                    && begin == Some(self.middle.as_slice())
                    && (other.after || other.middle.len() > fixed)
            }
            (true, true) => {
                fixed == 0 && other.middle.len() + usize::from(other.before) + usize::from(other.after) >= 2
            }
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for NamePattern {
    type Error = DnsFault;

    fn try_from(text: String) -> Result<Self, DnsFault> {
        Self::parse(&text)
    }
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> Self {
        pattern.text
    }
}

/// One part of what a token may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// What it gives.
    pub verbs: BTreeSet<Grant>,
    /// With which domains.
    pub domains: Domains,
    /// With records at which owners; none: with everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<BTreeSet<NamePattern>>,
    /// With records of which types; none: with everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub types: Option<BTreeSet<RrType>>,
}

impl Scope {
    /// Whether it gives this.
    pub fn gives(&self, grant: Grant) -> bool {
        self.verbs.contains(&grant)
    }

    /// Whether it is about a domain of this name.
    pub fn covers(&self, domain: &str) -> bool {
        match &self.domains {
            Domains::All => true,
            Domains::Named(names) => names.iter().any(|name| name.as_str() == domain),
        }
    }

    /// Whether it is about everything in its domains, not about some records alone.
    pub fn is_whole(&self) -> bool {
        self.names.is_none() && self.types.is_none()
    }

    /// Whether it is about an RRset of its domains.
    pub fn covers_rrset(&self, owner: &OwnerName, rrtype: RrType) -> bool {
        self.names.as_ref().is_none_or(|names| names.iter().any(|name| name.matches(owner)))
            && self.types.as_ref().is_none_or(|types| types.contains(&rrtype))
    }

    /// Whether another gives nothing that this does not, but for its verbs and domains.
    fn includes_records(&self, other: &Self) -> bool {
        let names = match (&self.names, &other.names) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(asked)) => asked.iter().all(|name| own.iter().any(|o| o.includes(name))),
        };
        let types = match (&self.types, &other.types) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(asked)) => asked.is_subset(own),
        };
        names && types
    }
}

/// Whether scopes give everything that one more would.
fn give(own: &[Scope], asked: &Scope) -> bool {
    asked.verbs.iter().all(|verb| {
        let holds = |covers: &dyn Fn(&Scope) -> bool| {
            own.iter().any(|scope| scope.gives(*verb) && covers(scope) && scope.includes_records(asked))
        };
        match &asked.domains {
            Domains::All => holds(&|scope| scope.domains == Domains::All),
            Domains::Named(names) => names.iter().all(|name| holds(&|scope| scope.covers(name.as_str()))),
        }
    })
}

/// What is wrong with the scopes of a token that is made with a token that has these: they must not exceed it.
pub fn exceeding(own: Option<&[Scope]>, asked: Option<&[Scope]>) -> Vec<Fault> {
    let Some(own) = own else { return Vec::new() };
    let Some(asked) = asked else {
        let detail = "the token that makes it is limited itself: say to what this one is";
        return vec![Fault::at("/scopes", "exceeds_caller", detail)];
    };
    let detail = "this goes beyond what the token that makes it may do";
    let beyond = asked.iter().enumerate().filter(|(_, scope)| !give(own, scope));
    beyond.map(|(index, _)| Fault::at(format!("/scopes/{index}"), "exceeds_caller", detail)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> NamePattern {
        NamePattern::parse(text).unwrap()
    }

    #[test]
    fn patterns_match_whole_labels() {
        let rows = [
            ("@", "@", true),
            ("@", "www", false),
            ("www", "www", true),
            ("WWW", "www", true),
            ("www", "a.www", false),
            ("*", "@", false),
            ("*", "a", true),
            ("*", "a.b", true),
            ("*", "*", true),
            ("*.dyn", "dyn", false),
            ("*.dyn", "a.dyn", true),
            ("*.dyn", "b.a.dyn", true),
            ("*.dyn", "*.dyn", true),
            ("*.dyn", "adyn", false),
            ("*.dyn", "a.dyn.b", false),
            ("_acme-challenge.*", "_acme-challenge", false),
            ("_acme-challenge.*", "_acme-challenge.www", true),
            ("_acme-challenge.*", "_acme-challenge.a.b", true),
            ("_acme-challenge.*", "x._acme-challenge.a", false),
            ("*.mid.*", "a.mid.b", true),
            ("*.mid.*", "a.b.mid.c", true),
            ("*.mid.*", "mid.b", false),
            ("*.mid.*", "a.mid", false),
            ("*.*", "a", false),
            ("*.*", "a.b", true),
        ];
        for (text, owner, expected) in rows {
            let owner = OwnerName::from_canonical(owner).unwrap();
            assert_eq!(pattern(text).matches(&owner), expected, "{text} {owner}");
        }
        for bad in ["", "a..b", "www.", "*.*.a", "a.*.b", "*.@", "a*", "*.a*.b"] {
            assert!(NamePattern::parse(bad).is_err(), "{bad}");
        }
    }

    /// What one pattern is said to include, it matches: tried with every owner of up to four labels.
    #[test]
    fn inclusion_never_claims_too_much() {
        let texts =
            ["@", "a", "b", "a.b", "*", "*.a", "*.b", "a.*", "*.a.*", "*.*", "a.b.*", "*.a.b", "b.a.*"];
        let mut owners = vec!["@".to_owned()];
        let mut level = vec!["a".to_owned(), "b".to_owned()];
        for _ in 0..4 {
            owners.extend(level.clone());
            level = level.iter().flat_map(|name| [format!("a.{name}"), format!("b.{name}")]).collect();
        }
        let owners: Vec<OwnerName> = owners.iter().map(|o| OwnerName::from_canonical(o).unwrap()).collect();
        let mut included = 0;
        for (one, other) in texts.iter().flat_map(|one| texts.iter().map(move |other| (one, other))) {
            let (wide, narrow) = (pattern(one), pattern(other));
            if wide.includes(&narrow) {
                included += 1;
                let beyond = owners.iter().find(|owner| narrow.matches(owner) && !wide.matches(owner));
                assert_eq!(beyond, None, "{one} does not include {other}");
            }
        }
        assert!(included > 2 * texts.len(), "{included}");
    }

    #[test]
    fn a_limited_token_makes_none_that_exceeds_it() {
        let scope = |json: &str| serde_json::from_str::<Scope>(json).unwrap();
        let own = [
            scope(r#"{"verbs":["read","admin"],"domains":["*"]}"#),
            scope(
                r#"{"verbs":["write"],"domains":["example.com"],"names":["*.dyn","www"],"types":["A","TXT"]}"#,
            ),
        ];
        let rows = [
            (r#"{"verbs":["read"],"domains":["*"]}"#, true),
            (r#"{"verbs":["read"],"domains":["example.net"],"types":["A"]}"#, true),
            (r#"{"verbs":["write"],"domains":["example.com"],"names":["a.dyn"],"types":["A"]}"#, true),
            (r#"{"verbs":["read","write"],"domains":["example.com"],"names":["www"],"types":["TXT"]}"#, true),
            (r#"{"verbs":["write"],"domains":["example.com"]}"#, false),
            (r#"{"verbs":["write"],"domains":["example.com"],"names":["www"]}"#, false),
            (r#"{"verbs":["write"],"domains":["example.com"],"names":["dyn"],"types":["A"]}"#, false),
            (r#"{"verbs":["write"],"domains":["example.com"],"names":["www"],"types":["MX"]}"#, false),
            (r#"{"verbs":["write"],"domains":["example.net"],"names":["www"],"types":["A"]}"#, false),
            (r#"{"verbs":["write"],"domains":["*"],"names":["www"],"types":["A"]}"#, false),
        ];
        for (asked, fits) in rows {
            assert_eq!(exceeding(Some(&own), Some(&[scope(asked)])).is_empty(), fits, "{asked}");
            assert!(exceeding(None, Some(&[scope(asked)])).is_empty());
        }
        assert_eq!(exceeding(Some(&own), None)[0].code, "exceeds_caller");
    }
}
