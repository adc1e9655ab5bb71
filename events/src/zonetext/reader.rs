//! A zone text, read entry by entry: directives, and records with what they leave to the lines before them.

use super::collect::Collected;
use super::entry::{self, Head, Labels, Told, at, told};
use super::lexer::{Lexed, Lexer};
use super::{Bounded, FAULTS_MAX_COUNT, Faulty, GENERATED_MAX_RECORDS, LineFault, ZoneText, generate};
use crate::dns::label::{self, Raw};
use crate::dns::soa::Soa;
use crate::dns::token::Token;
use crate::dns::{DomainName, OwnerName, Rdata, RrType};

/// TTL of records after a `$TTL` that cannot be read, so that it alone is told.
const FALLBACK_TTL_SECONDS: u32 = 3_600;

/// Reads a text; `records` is how many it may have.
///
/// # Errors
/// Every faulty line, the first ones one by one.
pub fn read(text: &[u8], zone: &DomainName, records: usize) -> Result<ZoneText, Faulty> {
    let mut faults = Bounded::new(FAULTS_MAX_COUNT);
    if text.len() > super::TEXT_MAX_BYTES {
        let detail = format!("the text has {} octets: at most {}", text.len(), super::TEXT_MAX_BYTES);
        faults.push(LineFault { line: 1, code: "too_large", detail });
        return Err(Faulty { faults: faults.kept, total: faults.total });
    }
    let mut reader = Reader::new(zone, records);
    let mut lexer = Lexer::new(text);
    while let Some(entry) = lexer.next() {
        let read = entry.and_then(|entry| {
            let line = entry.last;
            reader.entry(entry).map_err(|told| at(line, told))
        });
        if let Err(fault) = read {
            faults.push(fault);
        }
        if reader.collected.is_full() {
            faults.push(at(1, reader.collected.too_many()));
            break;
        }
    }
    reader.finish(faults)
}

struct Reader<'z> {
    zone: &'z DomainName,
    origin: Labels,
    /// What `$TTL` says.
    ttl: Option<u32>,
    /// The TTL of the last record that had one of its own.
    last_ttl: Option<u32>,
    /// The owner of the last record; `Err` where it could not be read.
    owner: Option<Result<OwnerName, ()>>,
    soa: Option<Soa>,
    generated: usize,
    collected: Collected,
}

impl<'z> Reader<'z> {
    fn new(zone: &'z DomainName, records: usize) -> Self {
        let zone_labels =
            label::scan(zone.as_str(), Raw::Owner).map_or_else(|_| Vec::new(), |read| read.labels);
        Self {
            zone,
            origin: zone_labels,
            ttl: None,
            last_ttl: None,
            owner: None,
            soa: None,
            generated: 0,
            collected: Collected::new(records),
        }
    }

    fn entry(&mut self, entry: Lexed<'_>) -> Result<(), Told> {
        let (first, last, is_derived) = (entry.first, entry.last, entry.is_derived);
        let is_directive =
            entry.tokens.first().is_some_and(|token| !token.quoted && token.text.starts_with('$'));
        let mut tokens = entry.tokens.into_iter();
        if is_directive {
            return self.directive(tokens, last);
        }
        if !entry.is_indented
            && let Some(token) = tokens.next()
        {
            self.owner = Some(Err(()));
            let read = if token.quoted {
                Err(("invalid_name", "the owner is in quotes: write it without them".to_owned()))
            } else {
                entry::owner(token.text, &self.origin, self.zone)
            };
            let (owner, doubtful) = read?;
            if let Some(doubtful) = doubtful {
                self.collected.warn(first, doubtful);
            }
            self.owner = Some(Ok(owner));
        }
        let head = entry::head(&mut tokens)?;
        self.record(&head, tokens.collect(), last, is_derived)
    }

    /// One record of the current owner.
    fn record(
        &mut self,
        head: &Head,
        tokens: Vec<Token<'_>>,
        line: usize,
        is_derived: bool,
    ) -> Result<(), Told> {
        let owner = match &self.owner {
            Some(Ok(owner)) => owner.clone(),
            // The line that names it was told already.
            Some(Err(())) => return Ok(()),
            None => {
                let detail =
                    "the line begins with a blank and no record stands before it whose owner it could take";
                return Err(("missing_owner", detail.to_owned()));
            }
        };
        if head.ttl.is_some() {
            self.last_ttl = head.ttl;
        }
        if head.rrtype == RrType::SOA {
            return self.soa(&owner, tokens, line);
        }
        if self.collected.drops(head.rrtype, line) {
            return Ok(());
        }
        head.rrtype.writable().map_err(told)?;
        let rdata = Rdata::of_zone_file(head.rrtype, tokens, &self.origin).map_err(told)?;
        let minimum = || self.soa.as_ref().map(Soa::minimum);
        let ttl = head.ttl.or(self.ttl).or(self.last_ttl).or_else(minimum);
        let Some(ttl) = ttl else {
            let detail =
                "the record has no TTL, and none stands before it: write `$TTL 3600` at the beginning";
            return Err(("missing_ttl", detail.to_owned()));
        };
        if owner.is_apex() && head.rrtype == RrType::NS {
            let detail =
                format!("the apex NS {rdata} was not taken over: the platform's nameservers stand there");
            if !is_derived {
                self.collected.warn(line, detail);
            }
            return Ok(());
        }
        if is_derived {
            let detail = format!(
                "{owner} {} is marked as derived and was left out: the platform answers it by itself",
                head.rrtype
            );
            self.collected.warn(line, detail);
            return Ok(());
        }
        self.collected.take(&owner, head.rrtype, ttl, rdata, line)
    }

    fn soa(&mut self, owner: &OwnerName, tokens: Vec<Token<'_>>, line: usize) -> Result<(), Told> {
        let time = |word: &str| entry::seconds(word).and_then(Result::ok);
        let soa = Soa::of_zone_file(tokens, &self.origin, time).map_err(told)?;
        if !owner.is_apex() {
            return Err((
                "soa_not_at_apex",
                format!("an SOA stands at the apex of its zone, not at {owner}"),
            ));
        }
        match &self.soa {
            None => {
                self.soa = Some(soa);
                Ok(())
            }
            // A zone transfer ends with the SOA that it began with.
            Some(known) if *known == soa => Ok(()),
            Some(_) => Err(("several_soas", format!("line {line} has another SOA than a line before it"))),
        }
    }

    fn directive(&mut self, mut tokens: std::vec::IntoIter<Token<'_>>, line: usize) -> Result<(), Told> {
        let Some(directive) = tokens.next() else { return Ok(()) };
        let name = directive.text.to_ascii_uppercase();
        if name == "$GENERATE" {
            return self.generate(tokens, line);
        }
        let word = tokens.next().filter(|token| !token.quoted).map(|token| token.text);
        let is_more = tokens.next().is_some();
        match (name.as_str(), word) {
            ("$INCLUDE", _) => {
                let detail =
                    "$INCLUDE is not allowed: put the text of the other file in its place".to_owned();
                Err(("include", detail))
            }
            ("$ORIGIN" | "$TTL", _) if word.is_none() || is_more => {
                self.ttl = if name == "$TTL" { Some(FALLBACK_TTL_SECONDS) } else { self.ttl };
                Err(("bad_directive", format!("{name} has one word behind it")))
            }
            ("$ORIGIN", Some(word)) => {
                self.origin = entry::name(word, &self.origin)?;
                Ok(())
            }
            ("$TTL", Some(word)) => {
                self.ttl = Some(FALLBACK_TTL_SECONDS);
                let read = entry::seconds(word);
                let bad = || ("invalid_ttl", format!("`{}` is no $TTL", word.escape_debug()));
                self.ttl = Some(
                    read.ok_or_else(bad)?.map_err(|(code, detail)| (code, format!("bad $TTL: {detail}")))?,
                );
                Ok(())
            }
            _ => {
                let shown: String = directive.text.chars().take(40).flat_map(char::escape_debug).collect();
                let detail = format!(
                    "`{shown}` is not a directive: there are $ORIGIN, $TTL and $GENERATE; an owner that begins so is written `\\{shown}`"
                );
                Err(("unknown_directive", detail))
            }
        }
    }

    fn generate(&mut self, mut tokens: std::vec::IntoIter<Token<'_>>, line: usize) -> Result<(), Told> {
        let usage =
            || ("bad_generate", "$GENERATE has a range, an owner, a type and data behind it".to_owned());
        let mut word =
            || tokens.next().filter(|token| !token.quoted).map(|token| token.text).ok_or_else(usage);
        let numbers = generate::range(word()?)?;
        let owner = word()?;
        let head = entry::head(&mut tokens)?;
        if head.rrtype == RrType::SOA {
            return Err(usage());
        }
        let data: Vec<Token<'_>> = tokens.collect();
        let before = self.owner.take();
        for number in numbers {
            self.generated += 1;
            if self.generated > GENERATED_MAX_RECORDS {
                let detail =
                    format!("the $GENERATE lines of one text make at most {GENERATED_MAX_RECORDS} records");
                return Err(("bad_generate", detail));
            }
            let (owner, _) = entry::owner(&generate::fill(owner, number)?, &self.origin, self.zone)?;
            self.owner = Some(Ok(owner));
            let filled: Result<Vec<String>, Told> =
                data.iter().map(|token| generate::fill(token.text, number)).collect();
            let filled = filled?;
            let made = filled.iter().zip(&data).map(|(text, token)| Token { text, quoted: token.quoted });
            self.record(&head, made.collect(), line, false)?;
            if self.collected.is_full() {
                break;
            }
        }
        self.owner = before;
        Ok(())
    }

    fn finish(mut self, mut faults: Bounded<LineFault>) -> Result<ZoneText, Faulty> {
        match &self.soa {
            Some(soa) => {
                let serial = soa.serial();
                let detail = format!(
                    "the SOA with the serial {serial} was not taken over: its fields come from the platform, and its serial goes on from the higher one"
                );
                self.collected.warnings.push(detail);
            }
            None => self.collected.warnings.push("the text has no SOA: the platform's is kept".to_owned()),
        }
        let serial = self.soa.as_ref().map(Soa::serial);
        let left_out = self.collected.left_out();
        let (rrsets, warnings) = self.collected.finish(|line, told| faults.push(at(line, told)));
        if faults.total > 0 {
            let mut kept = faults.kept;
            kept.sort_by_key(|fault| fault.line);
            return Err(Faulty { faults: kept, total: faults.total });
        }
        let records = rrsets.iter().map(|one| one.rrset.records().len()).sum();
        let (told, mut warnings) = (warnings.total, warnings.kept);
        if told > warnings.len() {
            warnings.push(format!("{} more warnings", told - warnings.len()));
        }
        Ok(ZoneText { rrsets, serial, warnings, left_out, records })
    }
}
