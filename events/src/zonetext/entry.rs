//! The fields of an entry before its data: owner, TTL, class, type, in the orders that RFC 1035, 5.1 allows.

use super::LineFault;
use crate::dns::label::{self, Raw};
use crate::dns::rrset::TTL_SECONDS_MAX;
use crate::dns::token::Token;
use crate::dns::{DnsFault, DomainName, OwnerName, RrType};

/// Labels of a name, leftmost first.
pub(super) type Labels = Vec<Vec<u8>>;

/// What stands before the data of a record.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) ttl: Option<u32>,
    pub(super) rrtype: RrType,
}

/// A fault without its line.
pub(super) type Told = (&'static str, String);

pub(super) fn told(fault: DnsFault) -> Told {
    (fault.code.as_str(), fault.detail)
}

pub(super) fn at(line: usize, (code, detail): Told) -> LineFault {
    LineFault { line, code, detail }
}

/// Reads TTL, class and type, and moves behind them.
pub(super) fn head(tokens: &mut std::vec::IntoIter<Token<'_>>) -> Result<Head, Told> {
    let (mut ttl, mut class) = (None, false);
    loop {
        let Some(token) = tokens.next() else {
            return Err(("missing_type", "the type of the record is missing".to_owned()));
        };
        if token.quoted {
            return Err((
                "unsupported_type",
                format!("`\"{}\"` stands where a type belongs", token.text.escape_debug()),
            ));
        }
        if ttl.is_none()
            && let Some(read) = seconds(token.text)
        {
            ttl = Some(read?);
            continue;
        }
        match class_of(token.text) {
            Some(true) if !class => class = true,
            Some(_) => {
                return Err((
                    "wrong_class",
                    format!("class {}: every record of the zone has class IN", token.text),
                ));
            }
            None => return Ok(Head { ttl, rrtype: RrType::parse(token.text).map_err(told)? }),
        }
    }
}

/// Whether a word is a class, and then whether it is that of the Internet.
fn class_of(word: &str) -> Option<bool> {
    let upper = word.to_ascii_uppercase();
    match upper.as_str() {
        "IN" => Some(true),
        "CH" | "CHAOS" | "HS" | "HESIOD" | "CS" | "NONE" => Some(false),
        _ => {
            let number = upper.strip_prefix("CLASS").filter(|rest| rest.bytes().all(|c| c.is_ascii_digit()));
            number.map(|number| number.parse() == Ok(1_u16))
        }
    }
}

/// Seconds, as a number or with units (`1h30m`); none where the word is no time at all.
pub(super) fn seconds(word: &str) -> Option<Result<u32, Told>> {
    if !word.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
        return None;
    }
    let most = u64::from(TTL_SECONDS_MAX);
    let bad = || {
        let detail = format!(
            "`{}` is not a time: write seconds from 0 to {TTL_SECONDS_MAX}, or units such as `1h30m`",
            word.chars().take(40).collect::<String>().escape_debug()
        );
        ("invalid_ttl", detail)
    };
    let (mut total, mut number, mut has_digits, mut has_unit) = (0_u64, 0_u64, false, false);
    for c in word.chars() {
        if let Some(digit) = c.to_digit(10) {
            number = number.saturating_mul(10).saturating_add(u64::from(digit));
            has_digits = true;
            continue;
        }
        let unit = match c.to_ascii_lowercase() {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return Some(Err(bad())),
        };
        if !has_digits {
            return Some(Err(bad()));
        }
        total = total.saturating_add(number.saturating_mul(unit));
        (number, has_digits, has_unit) = (0, false, true);
    }
    // A number behind the last unit is seconds to nobody.
    let total = if has_unit && has_digits { u64::MAX } else { total.saturating_add(number) };
    Some(u32::try_from(total).ok().filter(|_| total <= most).ok_or_else(bad))
}

/// A name of the text as labels: what has no final dot goes on with the origin.
pub(super) fn name(word: &str, origin: &Labels) -> Result<Labels, Told> {
    if word == "@" {
        return Ok(origin.clone());
    }
    let scanned = label::scan(word, Raw::Target).map_err(told)?;
    let mut labels = scanned.labels;
    if !scanned.absolute {
        labels.extend(origin.iter().cloned());
        label::check_length(&labels, 1, word).map_err(told)?;
    }
    Ok(labels)
}

/// The owner that a word names, with what may be wrong with it all the same.
pub(super) fn owner(
    word: &str,
    origin: &Labels,
    zone: &DomainName,
) -> Result<(OwnerName, Option<String>), Told> {
    let owner = OwnerName::of_labels(&name(word, origin)?, zone).map_err(told)?;
    let doubtful = if word == "\\052" || word.starts_with("\\052.") {
        Some(format!(
            "`{word}` is the name {owner}: an escape is decimal, so `\\052` is the digit 4. Where a wildcard is meant, write `*`"
        ))
    } else if repeats_zone(word, zone) {
        Some(format!("`{word}` has no final dot and is {owner}.{zone}."))
    } else {
        None
    };
    Ok((owner, doubtful))
}

/// Whether a word ends in the zone's name without the final dot.
fn repeats_zone(word: &str, zone: &DomainName) -> bool {
    let zone = zone.as_str();
    let Some(from) = word.len().checked_sub(zone.len()) else { return false };
    let before = word.as_bytes().get(..from).unwrap_or_default();
    word.as_bytes().get(from..).is_some_and(|end| end.eq_ignore_ascii_case(zone.as_bytes()))
        && (before.is_empty() || before.ends_with(b"."))
}
