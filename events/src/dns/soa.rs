//! The SOA of a zone file: checked, never written. The platform makes its own.

use super::fault::DnsFault;
use super::field::{Names, Tokens};
use super::token::Token;

/// What an SOA says that anybody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Soa {
    /// Everything but the case of its names, for comparing.
    pub(crate) fields: (Vec<Vec<u8>>, Vec<Vec<u8>>, [u32; 5]),
}

impl Soa {
    /// Reads its seven fields; `time` reads the four that may have units.
    pub(crate) fn of_zone_file(
        tokens: Vec<Token<'_>>,
        origin: &[Vec<u8>],
        time: impl Fn(&str) -> Option<u32>,
    ) -> Result<Self, DnsFault> {
        let mut tokens = Tokens::new(tokens, Names::Under(origin));
        let short = |fault: DnsFault| DnsFault::rdata(format!("an SOA has seven fields: {}", fault.detail));
        let (_, server) = tokens.name().map_err(short)?;
        let (_, mailbox) = tokens.name().map_err(short)?;
        let mut numbers = [tokens.number(u32::MAX).map_err(short)?, 0, 0, 0, 0];
        for number in numbers.iter_mut().skip(1) {
            let word = tokens.word("a time").map_err(short)?;
            *number = time(word).ok_or_else(|| {
                DnsFault::rdata(format!("{} is not a time of an SOA", super::fault::shown(word)))
            })?;
        }
        tokens.finish().map_err(short)?;
        Ok(Self { fields: (server, mailbox, numbers) })
    }

    /// Its serial.
    pub(crate) fn serial(&self) -> u32 {
        self.fields.2[0]
    }

    /// How long absence is remembered, which stands in for a TTL too.
    pub(crate) fn minimum(&self) -> u32 {
        self.fields.2[4]
    }
}
