//! Names of zones: absolute, lower case, A-labels, without the final dot.
//!
//! A [`DomainName`] that exists has 1 … 127 labels of 1 … 63 octets and at most 253 characters, each of them a
//! letter, digit, hyphen, underscore or slash (RFC 2317). The root is none. That every `xn--` label decodes is asked of
//! new names alone ([`DomainName::check_a_labels`]): what is stored can always be read and deleted.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::fault::{DnsFault, FaultCode, shown};
use super::label;
pub use super::owner::OwnerName;
pub use super::ownerkey::OwnerKey;

/// The most characters in a domain name.
pub const DOMAIN_NAME_CHARS: usize = 253;
/// The fewest labels in the name of a tenant's domain.
pub const TENANT_LABELS_MIN: usize = 2;

/// The name of a zone, such as `example.com`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "example.com")]
pub struct DomainName(String);

impl DomainName {
    /// Reads a name: A-labels or U-labels, any case, with or without the final dot.
    pub fn parse(input: &str) -> Result<Self, DnsFault> {
        // Four octets is the longest a character can be; what is longer cannot fit and is not worth mapping.
        if input.len() > 4 * (DOMAIN_NAME_CHARS + 1) {
            return Err(too_long(input));
        }
        let ascii = if input.is_ascii() { input.to_ascii_lowercase() } else { label::to_ascii(input)? };
        let name = ascii.strip_suffix('.').unwrap_or(&ascii);
        if name.is_empty() {
            return Err(DnsFault::name(
                "a domain needs a name other than the root: write for example `example.com`",
            ));
        }
        if name.len() > DOMAIN_NAME_CHARS {
            return Err(too_long(input));
        }
        for part in name.split('.') {
            check_label(part, input)?;
        }
        Ok(Self(name.to_owned()))
    }

    /// The name in presentation format without the final dot.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The labels, leftmost first.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('.')
    }

    /// The name without its leftmost label; nothing above a single label.
    pub fn parent(&self) -> Option<Self> {
        self.0.split_once('.').map(|(_, rest)| Self(rest.to_owned()))
    }

    /// Every name above this one, nearest first, without the root.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> + use<> {
        std::iter::successors(self.parent(), Self::parent)
    }

    /// Whether this name is `other` or lies below it.
    pub fn is_subdomain_of(&self, other: &Self) -> bool {
        match self.0.strip_suffix(other.as_str()) {
            Some(rest) => rest.is_empty() || rest.ends_with('.'),
            None => false,
        }
    }

    /// Whether every `xn--` label is the A-label of something: asked of a name that is to be new.
    pub fn check_a_labels(&self) -> Result<(), DnsFault> {
        label::check_a_labels(self.labels())
    }

    /// Whether a tenant may host this name; administrators may host any.
    pub fn tenant_allowed(&self) -> Result<(), DnsFault> {
        let shown = shown(&self.0);
        if self.labels().count() < TENANT_LABELS_MIN {
            let detail =
                format!("{shown} has one label: write a name below it, such as `example.{}`", self.0);
            return Err(DnsFault::new(FaultCode::TooFewLabels, detail));
        }
        if self.0.contains('/') {
            let detail =
                format!("{shown} is a classless reverse zone (RFC 2317): ask an administrator to host it");
            return Err(DnsFault::new(FaultCode::AdministratorsOnly, detail));
        }
        // The list holds internationalized suffixes in one of the two forms only.
        let unicode = self.to_unicode();
        if [self.as_str(), unicode.as_str()].into_iter().any(|name| psl::suffix_str(name) == Some(name)) {
            let detail = format!(
                "{shown} is a public suffix, under which others register names: write a name below it, such as `example.{}`",
                self.0
            );
            return Err(DnsFault::new(FaultCode::PublicSuffix, detail));
        }
        Ok(())
    }

    /// The name for people: U-labels in place of A-labels.
    pub fn to_unicode(&self) -> String {
        idna::domain_to_unicode(&self.0).0
    }

    /// The octets of the name on the wire, with the root.
    pub(crate) fn wire_len(&self) -> usize {
        self.0.len() + 2
    }
}

fn too_long(input: &str) -> DnsFault {
    DnsFault::name(format!("{} is longer than {DOMAIN_NAME_CHARS} characters", shown(input)))
}

/// One label of an ASCII name in lower case.
fn check_label(part: &str, input: &str) -> Result<(), DnsFault> {
    if part.is_empty() {
        return Err(DnsFault::name(format!(
            "{} has an empty label: write one dot between two labels",
            shown(input)
        )));
    }
    if part.len() > label::LABEL_OCTETS {
        let detail = format!(
            "{} has a label of {} octets: a label has at most {}",
            shown(input),
            part.len(),
            label::LABEL_OCTETS
        );
        return Err(DnsFault::name(detail));
    }
    match part.chars().find(|&c| !u8::try_from(c).is_ok_and(label::is_plain)) {
        None => Ok(()),
        Some(c) => Err(DnsFault::name(format!(
            "{} holds {}: a domain name has letters, digits, `-`, `_` and `.`",
            shown(input),
            shown(&c.to_string())
        ))),
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for DomainName {
    type Err = DnsFault;

    fn from_str(input: &str) -> Result<Self, DnsFault> {
        Self::parse(input)
    }
}

impl TryFrom<String> for DomainName {
    type Error = DnsFault;

    fn try_from(input: String) -> Result<Self, DnsFault> {
        Self::parse(&input)
    }
}

impl From<DomainName> for String {
    fn from(name: DomainName) -> Self {
        name.0
    }
}

/// Labels that begin with `xn--` and decode to nothing, to what is spelled otherwise, or to what may not stand there.
#[cfg(test)]
pub(super) const A_LABELS_OF_NOTHING: [&str; 12] = [
    "xn--",
    "xn--a",
    "xn--example",
    "xn--example-",
    "xn--zzzzzzzzzz99999",
    "xn--b_cher",
    // A letter and its mark apart, a mark alone, a joiner between Latin letters, a full-width letter, a capital letter,
    // a soft hyphen.
    "xn--u-ccb",
    "xn--a-bcb",
    "xn--ab-m1t",
    "xn--mi7c",
    "xn--bcher-2pa",
    "xn--ab-5da",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn name(input: &str) -> DomainName {
        DomainName::parse(input).unwrap()
    }

    #[test]
    fn spellings_of_one_name_are_one_name() {
        for input in ["example.com", "EXAMPLE.com", "Example.Com.", "ｅｘａｍｐｌｅ。com"] {
            assert_eq!(name(input).as_str(), "example.com", "{input}");
        }
        for input in [
            "bücher.example",
            "BÜCHER.example.",
            "xn--bcher-kva.example",
            "XN--BCHER-KVA.EXAMPLE",
            "bu\u{308}cher.example",
        ] {
            assert_eq!(name(input).as_str(), "xn--bcher-kva.example", "{input}");
            assert_eq!(name(input).to_unicode(), "bücher.example");
        }
        // Nontransitional: the sharp s stays itself.
        assert_eq!(name("straße.example").as_str(), "xn--strae-oqa.example");
        // A confusable is another name, and its A-label shows it.
        assert_eq!(name("p\u{430}ypal.example").as_str(), "xn--pypal-4ve.example");
        assert_eq!(name("0/25.2.0.192.in-addr.arpa").as_str(), "0/25.2.0.192.in-addr.arpa");
        assert_eq!(name("_acme-challenge.example.com").as_str(), "_acme-challenge.example.com");
        assert_eq!(name("test").as_str(), "test");
    }

    #[test]
    fn hostile_names_are_refused() {
        let long_label = "a".repeat(64);
        let long_name = format!("{}.example", vec!["a".repeat(49); 5].join("."));
        assert_eq!(long_name.len(), 257);
        let list = [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a.b..",
            "a b",
            " a.example",
            "a.example ",
            "a\0.example",
            "a\n.example",
            "a\t",
            "a\u{7f}.example",
            "a\\000.example",
            "a\\.b.example",
            "a\\097.example",
            "*.example.com",
            "a*b.example",
            "a;b.example",
            "a\"b",
            "a@b.example",
            "@",
            "https://example.com",
            "example.com:53",
            "a/..",
            "ex\u{202e}ample.com",
            "\u{ad}.com",
            "a\u{ff0f}b.com",
            "\u{2100}.com",
            "a\u{ff0a}.com",
            "a\u{200b}..com",
            "\u{d7ff}.com",
            &long_label,
            &long_name,
        ];
        for input in list {
            let fault = DomainName::parse(input).expect_err(input);
            assert_eq!(fault.code, FaultCode::InvalidName, "{input}");
            assert!(!fault.detail.chars().any(char::is_control), "{input:?}: {}", fault.detail);
        }
        assert!(DomainName::parse(&"a".repeat(1 << 20)).is_err());
    }

    #[test]
    fn what_would_be_dropped_is_refused_by_its_number() {
        for dropped in ["200B", "FEFF", "AD", "2060", "180B", "FE0F", "E0100"] {
            let c = char::from_u32(u32::from_str_radix(dropped, 16).unwrap()).unwrap();
            for input in [format!("exa{c}mple.com"), format!("{c}example.com"), format!("b\u{fc}ch{c}er.com")]
            {
                let fault = DomainName::parse(&input).expect_err(dropped);
                assert_eq!(fault.code, FaultCode::InvalidName);
                assert!(fault.detail.contains(&format!("U+{:04X},", u32::from(c))), "{}", fault.detail);
            }
        }
        // Joiners stay where a script needs them (RFC 5892, appendix A), and make another name.
        for (joined, without) in [
            (
                "\u{646}\u{627}\u{645}\u{647}\u{200c}\u{627}\u{6cc}.com",
                "\u{646}\u{627}\u{645}\u{647}\u{627}\u{6cc}.com",
            ),
            ("\u{915}\u{94d}\u{200d}\u{937}.com", "\u{915}\u{94d}\u{937}.com"),
        ] {
            assert_ne!(name(joined), name(without));
        }
        assert!(DomainName::parse("exam\u{200d}ple.com").is_err());
    }

    #[test]
    fn what_is_the_a_label_of_nothing_can_be_read_but_not_made() {
        for input in A_LABELS_OF_NOTHING {
            let name = name(&format!("{input}.example"));
            assert_eq!(name.check_a_labels().unwrap_err().code, FaultCode::InvalidName, "{input}");
            let stored: DomainName = serde_json::from_value(serde_json::json!(name)).unwrap();
            assert_eq!(stored, name);
        }
        for input in ["xn--bcher-kva", "XN--BCHER-KVA", "bücher", "p\u{430}ypal", "_x", "ab--cd", "xn-a", "☃"]
        {
            assert_eq!(name(&format!("{input}.example")).check_a_labels(), Ok(()), "{input}");
        }
    }

    #[test]
    fn limits_are_reached() {
        let label = "a".repeat(63);
        assert!(DomainName::parse(&format!("{label}.com")).is_ok());
        let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        assert_eq!(longest.len(), 253);
        assert_eq!(name(&longest).wire_len(), 255);
        assert_eq!(name(&format!("{longest}.")), name(&longest));
        assert!(DomainName::parse(&format!("{longest}a")).is_err());
    }

    #[test]
    fn relations() {
        let deep = name("a.b.example.com");
        assert_eq!(deep.labels().collect::<Vec<_>>(), ["a", "b", "example", "com"]);
        assert_eq!(
            deep.ancestors().map(String::from).collect::<Vec<_>>(),
            ["b.example.com", "example.com", "com"]
        );
        assert!(deep.is_subdomain_of(&name("example.com")) && deep.is_subdomain_of(&deep));
        assert!(!name("badexample.com").is_subdomain_of(&name("example.com")));
        assert!(!name("example.com").is_subdomain_of(&deep));
        assert_eq!(name("com").parent(), None);
    }

    #[test]
    fn tenants_host_no_public_names() {
        for fine in [
            "example.com",
            "a.co.uk",
            "example.test",
            "example.xn--55qx5d.cn",
            "2.0.192.in-addr.arpa",
            "_x.example.com",
        ] {
            assert_eq!(name(fine).tenant_allowed(), Ok(()), "{fine}");
        }
        for (refused, code) in [
            ("com", FaultCode::TooFewLabels),
            ("test", FaultCode::TooFewLabels),
            ("co.uk", FaultCode::PublicSuffix),
            ("github.io", FaultCode::PublicSuffix),
            ("公司.cn", FaultCode::PublicSuffix),
            ("0/25.2.0.192.in-addr.arpa", FaultCode::AdministratorsOnly),
        ] {
            assert_eq!(name(refused).tenant_allowed().unwrap_err().code, code, "{refused}");
        }
    }

    #[test]
    fn serde_validates() {
        assert_eq!(serde_json::from_str::<DomainName>("\"Example.COM.\"").unwrap(), name("example.com"));
        assert_eq!(serde_json::to_string(&name("example.com")).unwrap(), "\"example.com\"");
        assert!(serde_json::from_str::<DomainName>("\"a..b\"").is_err());
    }
}
