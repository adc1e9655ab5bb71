//! Mail addresses, as users are told apart by them: lower case, so that one person has one.

use headwater_events::admin::is_unseen;
use std::fmt;
use std::str::FromStr;

/// Octets of an address, at most.
pub const MAIL_MAX_BYTES: usize = 255;

/// A mail address in canonical spelling.
#[derive(Clone, PartialEq, Eq)]
pub struct MailAddress(String);

impl MailAddress {
    /// The address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MailAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for MailAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim().to_lowercase();
        let odd = |c: char| c.is_whitespace() || is_unseen(c) || matches!(c, '<' | '>' | ',' | ';');
        let is_address = match text.split_once('@') {
            Some((local, host)) => !local.is_empty() && !host.is_empty() && !host.contains('@'),
            None => false,
        };
        if !is_address || text.len() > MAIL_MAX_BYTES || text.contains(odd) {
            return Err(format!(
                "write a mail address of at most {MAIL_MAX_BYTES} octets, such as ann@example.com"
            ));
        }
        Ok(Self(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_person_has_one_address() {
        let address: MailAddress = " Ann@Example.COM ".parse().unwrap();
        assert_eq!(address.as_str(), "ann@example.com");
        for bad in ["", "a", "@b", "a@", "a@b@c", "a b@c", "a\n@b", "<a@b>", "a\u{200b}@b", "a\u{202e}@b"] {
            assert!(bad.parse::<MailAddress>().is_err(), "{bad}");
        }
    }
}
