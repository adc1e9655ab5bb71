//! Tools side by side: whose tool a token belongs to, and how much of a domain the token is shown. What a tool wrote is
//! its own: another writer must say that it takes it over.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Characters of a manager's name, at most.
pub const MANAGER_MAX_CHARS: usize = 64;
/// What the platform derives says that it is managed by this, so no tool is called so.
pub const PLATFORM: &str = "platform";

/// Not a manager's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a manager's name has 1 to {MANAGER_MAX_CHARS} of a-z, 0-9, `.`, `_` and `-`, begins with a letter or a digit, and is \
     not `{PLATFORM}`"
)]
pub struct NotAManager;

/// The name of a tool that manages RRsets. Tokens with the same name are the same manager.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Manager(String);

impl Manager {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Manager {
    type Err = NotAManager;

    fn from_str(text: &str) -> Result<Self, NotAManager> {
        let is_begin = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_name = text.starts_with(is_begin)
            && text.len() <= MANAGER_MAX_CHARS
            && text.chars().all(|c| is_begin(c) || matches!(c, '.' | '_' | '-'))
            && text != PLATFORM;
        if is_name { Ok(Self(text.to_owned())) } else { Err(NotAManager) }
    }
}

impl TryFrom<String> for Manager {
    type Error = NotAManager;

    fn try_from(text: String) -> Result<Self, NotAManager> {
        text.parse()
    }
}

impl From<Manager> for String {
    fn from(manager: Manager) -> Self {
        manager.0
    }
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which RRsets a token is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// All that its scopes let it read.
    #[default]
    All,
    /// Of those the ones alone that its manager owns.
    Own,
}

impl View {
    /// The name in bodies and events.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Own => "own",
        }
    }

    /// The one of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::All, Self::Own].into_iter().find(|view| view.name() == name)
    }
}

/// Whose tool a token belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Managing {
    /// The manager that owns what is written with the token; none: nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<Manager>,
    /// Which RRsets it is shown.
    #[serde(default, skip_serializing_if = "is_all")]
    pub view: View,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands out a reference
fn is_all(view: &View) -> bool {
    *view == View::All
}

impl Managing {
    /// Whether an RRset that this manager owns is shown.
    pub fn shows(&self, owned_by: Option<&Manager>) -> bool {
        self.view == View::All || (owned_by.is_some() && owned_by == self.manager.as_ref())
    }

    /// Whether an RRset that this manager owns belongs to somebody else.
    pub fn is_other(&self, owned_by: Option<&Manager>) -> bool {
        owned_by.is_some() && owned_by != self.manager.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_slugs() {
        for good in ["octodns", "external-dns.prod_1", "0", &"a".repeat(MANAGER_MAX_CHARS)] {
            assert_eq!(good.parse::<Manager>().unwrap().as_str(), good);
        }
        let long = "a".repeat(MANAGER_MAX_CHARS + 1);
        for bad in ["", "-a", ".a", "Octo", "a b", "ä", "a/b", PLATFORM, &long] {
            assert_eq!(bad.parse::<Manager>(), Err(NotAManager), "{bad}");
        }
    }

    #[test]
    fn what_is_shown_and_what_is_of_others() {
        let name = |text: &str| Some(text.parse::<Manager>().unwrap());
        let (a, b) = (name("a"), name("b"));
        let rows = [
            (None, View::All, &None, true, false),
            (None, View::All, &a, true, true),
            // Nobody's are of nobody's tool, so they are not its own.
            (None, View::Own, &None, false, false),
            (a.clone(), View::All, &None, true, false),
            (a.clone(), View::All, &a, true, false),
            (a.clone(), View::All, &b, true, true),
            (a.clone(), View::Own, &None, false, false),
            (a.clone(), View::Own, &a, true, false),
            (a.clone(), View::Own, &b, false, true),
        ];
        for (manager, view, owned_by, shown, other) in rows {
            let managing = Managing { manager, view };
            assert_eq!(managing.shows(owned_by.as_ref()), shown, "{managing:?} {owned_by:?}");
            assert_eq!(managing.is_other(owned_by.as_ref()), other, "{managing:?} {owned_by:?}");
        }
    }
}
