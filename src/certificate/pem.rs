//! PEM as it is pasted: blocks with their labels, in the order in which they stand (RFC 7468). Text around blocks is
//! passed over, both kinds of line ends are taken, and what is written out has one spelling.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::{Zeroize, Zeroizing};

/// Characters of a line.
const LINE_CHARS: usize = 64;
const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";
/// Blocks of one text, at most: a text that has more is no certificate.
const BLOCKS_MAX_COUNT: usize = 64;

/// One block. It has no `Debug`: it may be a private key.
pub(super) struct Block {
    /// What stands between the dashes.
    pub(super) label: String,
    /// Whether its headers say that it is encrypted (RFC 1421).
    pub(super) is_encrypted: bool,
    /// What it holds.
    pub(super) der: Zeroizing<Vec<u8>>,
}

impl Block {
    /// Whether it is a private key of any form.
    pub(super) fn is_key(&self) -> bool {
        self.label.ends_with("PRIVATE KEY")
    }

    /// What to call it in a fault: labels are the user's text, so only known ones are repeated.
    pub(super) fn shown(&self) -> &'static str {
        const KNOWN: [&str; 8] = [
            "CERTIFICATE",
            "CERTIFICATE REQUEST",
            "TRUSTED CERTIFICATE",
            "PUBLIC KEY",
            "DH PARAMETERS",
            "EC PARAMETERS",
            "X509 CRL",
            "PKCS7",
        ];
        match KNOWN.iter().find(|known| **known == self.label) {
            Some(known) => known,
            None if self.is_key() => "PRIVATE KEY",
            None => "block of another kind",
        }
    }
}

/// Why a text is no PEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PemFault {
    /// There is no block.
    Nothing,
    /// A block begins inside another, or does not end.
    Open,
    /// A block holds something else than base64.
    Base64,
    /// More blocks than anybody sends.
    TooMany,
}

impl PemFault {
    /// What is wrong, for people.
    pub(super) fn detail(self) -> &'static str {
        match self {
            Self::Nothing => {
                "this is not PEM: it begins with a line `-----BEGIN …-----`; DER is turned into PEM by \
                 `openssl x509 -inform der` or `openssl pkey -inform der`"
            }
            Self::Open => {
                "a block of the PEM does not end: the line `-----END …-----` is missing or does not fit; was all of it \
                 copied, with its line ends?"
            }
            Self::Base64 => {
                "a block of the PEM holds something that is not base64: was it changed on its way?"
            }
            Self::TooMany => "the PEM has more than 64 blocks",
        }
    }
}

/// Every block, in order.
pub(super) fn blocks(text: &str) -> Result<Vec<Block>, PemFault> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some(label) = marked(line, BEGIN) else { continue };
        if blocks.len() >= BLOCKS_MAX_COUNT {
            return Err(PemFault::TooMany);
        }
        let mut body = Zeroizing::new(String::with_capacity(text.len()));
        let mut is_encrypted = label.starts_with("ENCRYPTED");
        loop {
            let line = lines.next().ok_or(PemFault::Open)?;
            match marked(line, END) {
                Some(end) if end == label => break,
                Some(_) => return Err(PemFault::Open),
                None if line.starts_with(BEGIN) => return Err(PemFault::Open),
                None => {}
            }
            match line.split_once(':') {
                Some(("Proc-Type", value)) => is_encrypted |= value.contains("ENCRYPTED"),
                Some(_) => {}
                None => body.push_str(line),
            }
        }
        let der = STANDARD.decode(body.as_bytes()).map(Zeroizing::new).map_err(|_| PemFault::Base64)?;
        blocks.push(Block { label: label.to_owned(), is_encrypted, der });
    }
    if blocks.is_empty() { Err(PemFault::Nothing) } else { Ok(blocks) }
}

fn marked<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    line.strip_prefix(mark)?.strip_suffix(DASHES)
}

/// A block in its one spelling, as edges read it.
pub(super) fn write(label: &str, der: &[u8]) -> Vec<u8> {
    let mut text = STANDARD.encode(der);
    let mut pem = Vec::with_capacity(text.len() + text.len() / LINE_CHARS + 2 * (label.len() + 20));
    pem.extend_from_slice(format!("{BEGIN}{label}{DASHES}\n").as_bytes());
    for line in text.as_bytes().chunks(LINE_CHARS) {
        pem.extend_from_slice(line);
        pem.push(b'\n');
    }
    pem.extend_from_slice(format!("{END}{label}{DASHES}\n").as_bytes());
    text.zeroize();
    pem
}
