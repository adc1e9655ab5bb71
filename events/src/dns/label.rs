//! Labels: from presentation format to octets, to the canonical spelling, to and from the wire.
//!
//! Inside, a label is its octets with ASCII letters in lower case. Its canonical spelling writes letters,
//! digits, hyphen, underscore and slash as they are, a whole leftmost `*` too, every other printable
//! character behind a backslash, and the rest as `\DDD`. That is narrower than what a zone file would need,
//! but it can be pasted into one anywhere, and exactly what input may hold reads back as itself.
//! Control octets are refused in every form: no program needs them and many mishandle them.

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

use super::fault::{DnsFault, shown};

/// The most octets in one label (RFC 1035, 2.3.4).
pub(crate) const LABEL_OCTETS: usize = 63;
/// The most octets in one name on the wire, with length octets and the root (RFC 1035, 2.3.4).
pub(crate) const WIRE_NAME_OCTETS: usize = 255;
/// The most octets of presentation text that is looked at: every octet of the longest name as `\DDD`.
const TEXT_OCTETS: usize = 4 * WIRE_NAME_OCTETS;

/// What a U-label may not contain after mapping: every ASCII character but letters, digits, hyphen, underscore.
const DENIED: AsciiDenyList = AsciiDenyList::new(true, "!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~");

/// Which characters may stand unescaped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Raw {
    /// An owner: letters, digits, `-`, `_`, `/`, and `*` as the whole leftmost label.
    Owner,
    /// A name in record data: every printable character that a zone file does not treat specially.
    Target,
}

/// Labels of a name as it was written, leftmost first.
#[derive(Debug)]
pub(crate) struct Scanned {
    /// The labels without the root.
    pub(crate) labels: Vec<Vec<u8>>,
    /// Whether the final dot was there.
    pub(crate) absolute: bool,
}

/// Whether an octet of a lower-cased label is written as it is.
pub(crate) fn is_plain(octet: u8) -> bool {
    octet.is_ascii_lowercase() || octet.is_ascii_digit() || matches!(octet, b'-' | b'_' | b'/')
}

/// A U-label, or several joined by dots, as A-labels (UTS 46, nontransitional). A character that the mapping would drop
/// is refused: two names that look alike, one of them with something that nobody sees, are no spellings of one.
pub(crate) fn to_ascii(text: &str) -> Result<String, DnsFault> {
    if let Some(c) = text.chars().find(|c| is_dropped(*c)) {
        return Err(DnsFault::name(format!(
            "{} holds U+{:04X}, which cannot be seen and does not count in a name: remove it",
            shown(text),
            u32::from(c)
        )));
    }
    Uts46::new()
        .to_ascii(text.as_bytes(), DENIED, Hyphens::Allow, DnsLength::Ignore)
        .map(|ascii| ascii.into_owned())
        .map_err(|_| {
            DnsFault::name(format!(
                "{} is not an internationalized name (UTS 46): write letters and digits of one script, or the `xn--` form",
                shown(text)
            ))
        })
}

/// Whether UTS 46 maps a character to nothing, as it does with the soft hyphen and the zero-width space.
fn is_dropped(c: char) -> bool {
    let around = format!("a{c}b");
    let ascii = || Uts46::new().to_ascii(around.as_bytes(), DENIED, Hyphens::Allow, DnsLength::Ignore);
    !c.is_ascii() && ascii().is_ok_and(|ascii| ascii == "ab")
}

/// Refuses `xn--` labels that do not decode, or decode to what would be spelled otherwise: they are the A-labels of
/// nothing (RFC 5890, 2.3.2.1). Labels in presentation format.
pub(crate) fn check_a_labels<'l>(labels: impl Iterator<Item = &'l str>) -> Result<(), DnsFault> {
    for label in labels.filter(|label| label.starts_with("xn--")) {
        if to_ascii(label).is_ok_and(|ascii| ascii == label) {
            continue;
        }
        return Err(DnsFault::name(format!(
            "{} begins with `xn--` and is the A-label of nothing: write the name in its own script, or its right `xn--` form",
            shown(label)
        )));
    }
    Ok(())
}

/// One label under construction.
#[derive(Default)]
struct Draft {
    octets: Vec<u8>,
    unicode: bool,
    escaped: bool,
}

impl Draft {
    fn finish(self, text: &str) -> Result<Vec<u8>, DnsFault> {
        let mut octets = self.octets;
        if self.unicode {
            let label = match std::str::from_utf8(&octets) {
                Ok(label) if !self.escaped => label,
                _ => {
                    return Err(DnsFault::name(format!(
                        "{} mixes escaped octets with characters beyond ASCII: write every octet as `\\DDD`, or the label in its `xn--` form",
                        shown(text)
                    )));
                }
            };
            let ascii = to_ascii(label)?;
            if ascii.contains('.') {
                return Err(DnsFault::name(format!(
                    "{} has a dot that is not the ASCII dot: write `.`",
                    shown(text)
                )));
            }
            octets = ascii.into_bytes();
        }
        if octets.is_empty() {
            return Err(DnsFault::name(format!(
                "{} has an empty label: write one dot between two labels",
                shown(text)
            )));
        }
        if octets.len() > LABEL_OCTETS {
            return Err(DnsFault::name(format!(
                "{} has a label of {} octets: a label has at most {LABEL_OCTETS}",
                shown(text),
                octets.len()
            )));
        }
        octets.make_ascii_lowercase();
        Ok(octets)
    }
}

/// Reads a name in presentation format. The root alone (`.`) has no labels and is absolute.
pub(crate) fn scan(text: &str, raw: Raw) -> Result<Scanned, DnsFault> {
    if text.is_empty() {
        return Err(DnsFault::name("the name is empty: write `@` for the zone itself"));
    }
    if text.len() > TEXT_OCTETS {
        return Err(DnsFault::name(format!(
            "the name is {} octets long: a name has at most 253",
            text.len()
        )));
    }
    if text == "." {
        return Ok(Scanned { labels: Vec::new(), absolute: true });
    }
    let mut labels = Vec::new();
    let mut draft = Draft::default();
    let mut absolute = false;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        absolute = false;
        match c {
            '.' => {
                labels.push(std::mem::take(&mut draft).finish(text)?);
                absolute = true;
            }
            '\\' => {
                draft.octets.push(escaped_octet(&mut rest, text)?);
                draft.escaped = true;
            }
            c if !c.is_ascii() => {
                draft.octets.extend(c.encode_utf8(&mut [0; 4]).bytes());
                draft.unicode = true;
            }
            c => {
                let leftmost = labels.is_empty() && draft.octets.is_empty();
                let alone = leftmost && matches!(rest.as_str().as_bytes().first(), None | Some(b'.'));
                check_raw(c, raw, alone, text)?;
                draft.octets.push(c as u8);
            }
        }
    }
    if !absolute {
        labels.push(draft.finish(text)?);
    }
    check_length(&labels, 1, text)?;
    Ok(Scanned { labels, absolute })
}

/// Refuses an unescaped ASCII character that may not stand there; `alone`: it is the whole leftmost label.
fn check_raw(c: char, raw: Raw, alone: bool, text: &str) -> Result<(), DnsFault> {
    let fine = match raw {
        _ if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/') => true,
        Raw::Owner => c == '*' && alone,
        Raw::Target => c.is_ascii_graphic() && !matches!(c, '"' | '(' | ')' | ';' | '@' | '$'),
    };
    if fine {
        return Ok(());
    }
    let detail = match c {
        '*' => format!("{}: `*` is the whole leftmost label or nothing; elsewhere write `\\*`", shown(text)),
        c if c.is_ascii_graphic() => {
            format!(
                "{} holds `{c}`: a name has letters, digits, `-` and `_`; write `\\{c}` if it is really meant",
                shown(text)
            )
        }
        c => format!("{} holds the octet {}: remove it", shown(text), c as u32),
    };
    Err(DnsFault::name(detail))
}

/// The octet behind a backslash.
fn escaped_octet(rest: &mut std::str::Chars<'_>, text: &str) -> Result<u8, DnsFault> {
    let octet = unescape(rest).ok_or_else(|| {
        DnsFault::name(format!(
            "{} has a bad escape: write `\\DDD` with three digits up to 255, or `\\` and one character",
            shown(text)
        ))
    })?;
    if octet.is_ascii_control() {
        return Err(DnsFault::name(format!(
            "{} holds the control octet \\{octet:03}: remove it",
            shown(text)
        )));
    }
    Ok(octet)
}

/// What follows a backslash: three digits, or one ASCII character that stands for itself.
pub(crate) fn unescape(rest: &mut std::str::Chars<'_>) -> Option<u8> {
    let first = rest.next()?;
    let Some(hundreds) = first.to_digit(10) else {
        return u8::try_from(first).ok().filter(u8::is_ascii);
    };
    let tens = rest.next()?.to_digit(10)?;
    let ones = rest.next()?.to_digit(10)?;
    u8::try_from(hundreds * 100 + tens * 10 + ones).ok()
}

/// The octets of labels on the wire, without the root.
pub(crate) fn wire_len(labels: &[Vec<u8>]) -> usize {
    labels.iter().map(|label| label.len() + 1).sum()
}

/// Refuses labels that, with `more` octets after them, make no name.
pub(crate) fn check_length(labels: &[Vec<u8>], more: usize, text: &str) -> Result<(), DnsFault> {
    let octets = wire_len(labels) + more;
    if octets > WIRE_NAME_OCTETS {
        return Err(DnsFault::name(format!(
            "{} makes a name of {octets} octets on the wire: at most {WIRE_NAME_OCTETS}, which is 253 characters",
            shown(text)
        )));
    }
    Ok(())
}

/// The canonical spelling of labels, leftmost first, without a final dot.
pub(crate) fn print(labels: &[Vec<u8>]) -> String {
    let mut out = String::with_capacity(wire_len(labels));
    for (n, label) in labels.iter().enumerate() {
        if n > 0 {
            out.push('.');
        }
        if n == 0 && label == b"*" {
            out.push('*');
            continue;
        }
        for &octet in label {
            push_octet(&mut out, octet, is_plain(octet));
        }
    }
    out
}

/// One octet: as it is, behind a backslash, or as `\DDD`.
pub(crate) fn push_octet(out: &mut String, octet: u8, plain: bool) {
    if plain {
        out.push(char::from(octet));
    } else if octet.is_ascii_graphic() {
        out.push('\\');
        out.push(char::from(octet));
    } else {
        out.push_str(&format!("\\{octet:03}"));
    }
}

/// A name at the start of `wire`, uncompressed, and what follows it.
pub(crate) fn read_wire(wire: &[u8]) -> Result<(Vec<Vec<u8>>, &[u8]), DnsFault> {
    let cut = || DnsFault::rdata("a name on the wire is cut short or compressed");
    let mut labels = Vec::new();
    let mut rest = wire;
    loop {
        let (&len, tail) = rest.split_first().ok_or_else(cut)?;
        if len == 0 {
            check_length(&labels, 1, "the name")?;
            return Ok((labels, tail));
        }
        let len = usize::from(len);
        if len > LABEL_OCTETS || len > tail.len() || wire.len() - tail.len() > WIRE_NAME_OCTETS {
            return Err(cut());
        }
        let (label, tail) = tail.split_at(len);
        if label.iter().any(u8::is_ascii_control) {
            return Err(DnsFault::name("a name on the wire holds control octets: they are not taken"));
        }
        labels.push(label.to_ascii_lowercase());
        rest = tail;
    }
}

/// Labels on the wire, with the root.
pub(crate) fn push_wire(out: &mut Vec<u8>, labels: &[Vec<u8>]) {
    for label in labels {
        // A label has at most 63 octets: `scan` and `read_wire` see to it.
        out.push(label.len() as u8);
        out.extend_from_slice(label);
    }
    out.push(0);
}
