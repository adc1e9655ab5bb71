//! Record data in presentation format as its tokens (RFC 1035, 5.1), one record only.
//!
//! What a zone file may have around a record and a single value may not is refused by name: comments,
//! parentheses, line breaks. Octets of a token are those of its UTF-8 text.

use super::fault::{DnsFault, shown};
use super::label;

/// The most octets in the data of one record on the wire.
pub(crate) const RDATA_OCTETS: usize = 65_535;
/// The most octets of text for it: every octet as `\DDD`, and quotes around character-strings.
pub(crate) const RDATA_TEXT_OCTETS: usize = 5 * RDATA_OCTETS;

/// One token with its escapes in place, without the quotes around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'t> {
    pub(crate) text: &'t str,
    pub(crate) quoted: bool,
}

/// The tokens of one value.
pub(crate) fn split(text: &str) -> Result<Vec<Token<'_>>, DnsFault> {
    if text.len() > RDATA_TEXT_OCTETS {
        return Err(DnsFault::rdata(format!(
            "the value is {} octets of text: at most {RDATA_TEXT_OCTETS}",
            text.len()
        )));
    }
    if let Some(c) = text.chars().find(|&c| c.is_ascii_control() && c != '\t') {
        return Err(DnsFault::rdata(match c {
            '\n' | '\r' => "the value has a line break: write one record as one line; inside a quoted string write `\\010`".to_owned(),
            c => format!("the value holds the control octet {}: write `\\{:03}` inside a quoted string", c as u32, c as u32),
        }));
    }
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        let Some(first) = rest.chars().next() else {
            break;
        };
        let (token, tail) = match first {
            '"' => quoted(&rest[1..])?,
            _ => bare(rest)?,
        };
        // `"a""b"` is two strings to most loaders; anything else glued to a quote is a slip of the pen.
        if token.quoted && !matches!(tail.chars().next(), None | Some(' ' | '\t' | '"')) {
            return Err(DnsFault::rdata(format!(
                "{} follows a quoted string at once: put a blank between them",
                shown(tail)
            )));
        }
        tokens.push(token);
        rest = tail;
    }
    if tokens.is_empty() {
        return Err(DnsFault::rdata("the value is empty"));
    }
    Ok(tokens)
}

/// A quoted token and what follows its closing quote.
fn quoted(text: &str) -> Result<(Token<'_>, &str), DnsFault> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => {
                return Ok((Token { text: &text[..at], quoted: true }, &text[at + 1..]));
            }
            _ => {}
        }
    }
    Err(DnsFault::rdata("a quoted string has no closing `\"`"))
}

/// An unquoted token and what follows it.
fn bare(text: &str) -> Result<(Token<'_>, &str), DnsFault> {
    let mut escaped = false;
    let mut end = text.len();
    let mut last = ' ';
    for (at, c) in text.char_indices() {
        let before = std::mem::replace(&mut last, c);
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            // A value of a parameter goes to its closing quote.
            '"' if before == '=' => return with_quoted_value(text, at),
            ' ' | '\t' => {
                end = at;
                break;
            }
            ';' => {
                return Err(DnsFault::rdata(
                    "an unquoted `;` begins a comment, which a value cannot have: quote the string, or write `\\;`",
                ));
            }
            '(' | ')' => {
                return Err(DnsFault::rdata(format!(
                    "an unquoted `{c}` continues lines, which a value cannot: leave it out, or quote the string"
                )));
            }
            '"' => {
                return Err(quote_within());
            }
            _ => {}
        }
    }
    if escaped {
        return Err(DnsFault::rdata("a backslash at the end escapes nothing: write `\\\\`"));
    }
    Ok((Token { text: &text[..end], quoted: false }, &text[end..]))
}

/// A word up to the quote at `at`, and the quoted value behind it, as one token.
fn with_quoted_value(text: &str, at: usize) -> Result<(Token<'_>, &str), DnsFault> {
    let (value, tail) = quoted(text.get(at + 1..).unwrap_or_default())?;
    if !matches!(tail.chars().next(), None | Some(' ' | '\t')) {
        return Err(DnsFault::rdata(format!(
            "{} follows a quoted value at once: put a blank between",
            shown(tail)
        )));
    }
    let end = at + value.text.len() + 2;
    Ok((Token { text: text.get(..end).unwrap_or_default(), quoted: false }, tail))
}

/// Refuses words with a value in quotes, where the type has no parameters.
pub(crate) fn refuse_quotes_within(tokens: &[Token<'_>]) -> Result<(), DnsFault> {
    let holds = |token: &&Token<'_>| !token.quoted && token.text.contains("=\"");
    match tokens.iter().find(holds) {
        None => Ok(()),
        Some(_) => Err(quote_within()),
    }
}

fn quote_within() -> DnsFault {
    DnsFault::rdata("a quote in the middle of a word: put the whole string in quotes, or write `\\\"`")
}

/// The octets that a token stands for.
pub(crate) fn octets(token: Token<'_>) -> Result<Vec<u8>, DnsFault> {
    let mut out = Vec::with_capacity(token.text.len());
    let mut rest = token.text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.extend(c.encode_utf8(&mut [0; 4]).bytes());
            continue;
        }
        // A backslash before a character beyond ASCII stands for that character.
        if let Some(c) = rest.clone().next().filter(|c| !c.is_ascii()) {
            rest.next();
            out.extend(c.encode_utf8(&mut [0; 4]).bytes());
            continue;
        }
        let octet = label::unescape(&mut rest).ok_or_else(|| {
            DnsFault::rdata(format!(
                "{} has a bad escape: write `\\DDD` with three digits up to 255",
                shown(token.text)
            ))
        })?;
        out.push(octet);
    }
    Ok(out)
}

/// A character-string in quotes, in its one canonical spelling.
pub(crate) fn push_quoted(out: &mut String, octets: &[u8]) {
    out.push('"');
    for &octet in octets {
        label::push_octet(
            out,
            octet,
            (octet.is_ascii_graphic() || octet == b' ') && !matches!(octet, b'"' | b'\\'),
        );
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens() {
        let texts = |text| {
            split(text)
                .map(|tokens| tokens.iter().map(|token| (token.text, token.quoted)).collect::<Vec<_>>())
                .unwrap()
        };
        assert_eq!(texts(" 10\t mail.example. "), [("10", false), ("mail.example.", false)]);
        assert_eq!(
            texts("\"a\"\"b c\" \"\" d\\ e"),
            [("a", true), ("b c", true), ("", true), ("d\\ e", false)]
        );
        for text in [
            "", " \t", "a ; b", ";a", "(a)", "a )", "a\"b\"", "\"a\"b", "\"a", "\"a\\\"", "a\\", "a\nb",
            "\"a\nb\"", "a\r", "\"a\0\"",
        ] {
            assert!(split(text).is_err(), "{text:?}");
        }
        assert!(split(&"a".repeat(RDATA_TEXT_OCTETS + 1)).is_err());
    }
}
