//! Octets of a zone text as entries: the tokens of one line, or of several that parentheses join.
//!
//! A fault is told with its line, and reading goes on with the next one. Comments are no text of the zone: whatever
//! octets stand in them.

use super::{DERIVED, ENTRY_MAX_TOKENS, LineFault};
use crate::dns::token::Token;

/// One entry.
#[derive(Debug)]
pub(super) struct Lexed<'t> {
    /// The line that it begins at.
    pub(super) first: usize,
    /// The line that it ends at.
    pub(super) last: usize,
    /// Whether white space stands at its beginning: its owner is that of the entry before.
    pub(super) is_indented: bool,
    /// Its tokens.
    pub(super) tokens: Vec<Token<'t>>,
    /// Whether its comment says that it is derived.
    pub(super) is_derived: bool,
}

/// Reads a text entry by entry.
pub(super) struct Lexer<'t> {
    text: &'t [u8],
    at: usize,
    line: usize,
}

fn fault(line: usize, code: &'static str, detail: impl Into<String>) -> LineFault {
    LineFault { line, code, detail: detail.into() }
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t [u8]) -> Self {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        Self { text, at: 0, line: 1 }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Moves to the beginning of the next line.
    fn skip_line(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        self.at += rest.iter().position(|octet| *octet == b'\n').unwrap_or(rest.len());
        self.end_line();
    }

    fn end_line(&mut self) {
        if self.at < self.text.len() {
            self.at += 1;
            self.line += 1;
        }
    }

    /// The next entry that holds anything; none at the end.
    pub(super) fn next(&mut self) -> Option<Result<Lexed<'t>, LineFault>> {
        while self.at < self.text.len() {
            match self.entry() {
                Ok(entry) if entry.tokens.is_empty() => {}
                Ok(entry) => return Some(Ok(entry)),
                Err(fault) => {
                    self.skip_line();
                    return Some(Err(fault));
                }
            }
        }
        None
    }

    fn entry(&mut self) -> Result<Lexed<'t>, LineFault> {
        let is_indented = matches!(self.peek(), Some(b' ' | b'\t'));
        let mut entry =
            Lexed { first: self.line, last: self.line, is_indented, tokens: Vec::new(), is_derived: false };
        let mut opened: Vec<usize> = Vec::new();
        loop {
            let Some(octet) = self.peek() else {
                return match opened.first() {
                    None => Ok(entry),
                    Some(line) => Err(fault(*line, "open_parenthesis", "a `(` is never closed")),
                };
            };
            match octet {
                b' ' | b'\t' => self.at += 1,
                b'\r' if matches!(self.text.get(self.at + 1), None | Some(b'\n')) => self.at += 1,
                b'\n' => {
                    self.end_line();
                    if opened.is_empty() {
                        return Ok(entry);
                    }
                }
                b';' => entry.is_derived |= self.comment(),
                b'(' => {
                    if opened.len() >= ENTRY_MAX_TOKENS {
                        return Err(self.endless());
                    }
                    opened.push(self.line);
                    self.at += 1;
                }
                b')' => {
                    if opened.pop().is_none() {
                        return Err(fault(self.line, "stray_parenthesis", "a `)` closes nothing"));
                    }
                    self.at += 1;
                    entry.last = self.line;
                }
                _ => {
                    if entry.tokens.len() >= ENTRY_MAX_TOKENS {
                        return Err(self.endless());
                    }
                    // Where the first token stands, an entry that parentheses begin begins.
                    if entry.tokens.is_empty() {
                        entry.first = self.line;
                    }
                    entry.last = self.line;
                    let token = self.token()?;
                    entry.tokens.push(token);
                }
            }
        }
    }

    fn endless(&self) -> LineFault {
        fault(
            self.line,
            "entry_too_long",
            format!("the record that goes on here has more than {ENTRY_MAX_TOKENS} words: is a `)` missing?"),
        )
    }

    /// Skips a comment; whether it marks the line as derived.
    fn comment(&mut self) -> bool {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let len = rest.iter().position(|octet| *octet == b'\n').unwrap_or(rest.len());
        let said = rest.get(1..len).unwrap_or_default().trim_ascii();
        self.at += len;
        said == DERIVED.as_bytes()
    }

    fn token(&mut self) -> Result<Token<'t>, LineFault> {
        let start = self.at;
        if self.peek() == Some(b'"') {
            self.at += 1;
            self.quoted()?;
            let text = self.text.get(start + 1..self.at - 1).unwrap_or_default();
            if !matches!(self.peek(), None | Some(b' ' | b'\t' | b'\r' | b'\n' | b';' | b'(' | b')' | b'"')) {
                return Err(fault(
                    self.line,
                    "invalid_text",
                    "something follows a quoted string at once: put a blank between them",
                ));
            }
            return Ok(Token { text: self.utf8(text)?, quoted: true });
        }
        let mut last = 0;
        while let Some(octet) = self.peek() {
            match octet {
                b'\\' => {
                    self.at += 1;
                    if matches!(self.peek(), None | Some(b'\r' | b'\n')) {
                        return Err(fault(self.line, "bad_escape", "a backslash at the end escapes nothing"));
                    }
                }
                b' ' | b'\t' | b'\n' | b';' | b'(' | b')' => break,
                b'\r' if matches!(self.text.get(self.at + 1), None | Some(b'\n')) => break,
                // The value of a parameter, `alpn="h2,h3"`.
                b'"' if last == b'=' => {
                    self.at += 1;
                    self.quoted()?;
                    break;
                }
                b'"' => {
                    return Err(fault(
                        self.line,
                        "invalid_text",
                        "a quote in the middle of a word: put the whole string in quotes, or write `\\\"`",
                    ));
                }
                octet if octet.is_ascii_control() => return Err(self.control(octet)),
                _ => {}
            }
            last = octet;
            self.at += 1;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        Ok(Token { text: self.utf8(text)?, quoted: false })
    }

    /// Goes behind the closing quote.
    fn quoted(&mut self) -> Result<(), LineFault> {
        loop {
            let octet = self.peek().filter(|octet| !matches!(octet, b'\n' | b'\r'));
            let Some(octet) = octet else {
                return Err(fault(
                    self.line,
                    "open_quote",
                    "a quoted string is not closed on its line: close it, and write a line break in it as `\\010`",
                ));
            };
            self.at += 1;
            match octet {
                b'"' => return Ok(()),
                b'\\' if !matches!(self.peek(), None | Some(b'\n' | b'\r')) => self.at += 1,
                octet if octet.is_ascii_control() && octet != b'\t' => return Err(self.control(octet)),
                _ => {}
            }
        }
    }

    fn control(&self, octet: u8) -> LineFault {
        fault(
            self.line,
            "invalid_text",
            format!("the control octet {octet} stands here: write `\\{octet:03}` inside a quoted string"),
        )
    }

    fn utf8(&self, octets: &'t [u8]) -> Result<&'t str, LineFault> {
        std::str::from_utf8(octets).map_err(|_| {
            fault(
                self.line,
                "invalid_text",
                "this is not UTF-8: save the file as UTF-8, or write every such octet as `\\DDD`",
            )
        })
    }
}
