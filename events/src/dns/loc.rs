//! A place on earth (RFC 1876): sixteen octets, and `52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000.00m 10.00m`.

use super::fault::{DnsFault, shown};
use super::field::Tokens;
use super::token::Token;

/// The equator and the prime meridian.
const ORIGIN: i64 = 1 << 31;
/// Thousandths of an arc second in a degree.
const DEGREE: i64 = 3_600_000;
/// How far below the reference spheroid altitudes begin, in centimetres.
const ALTITUDE_BASE_CENTIMETRES: i64 = 10_000_000;
/// The largest size or precision, in centimetres.
const SIZE_MAX_CENTIMETRES: i64 = 9_000_000_000;
/// Size and precisions where they are left out, in centimetres.
const DEFAULTS_CENTIMETRES: [i64; 3] = [100, 1_000_000, 1_000];

fn fault(what: &str, word: &str) -> DnsFault {
    DnsFault::rdata(format!(
        "{} is not {what}: write for example `52 22 23.000 N 4 53 32.000 E -2.00m 1m 10000m 10m`",
        shown(word)
    ))
}

pub(super) fn scan(tokens: &mut Tokens<'_>, out: &mut Vec<u8>) -> Result<(), DnsFault> {
    let latitude = angle(tokens, 90, "N", "S")?;
    let longitude = angle(tokens, 180, "E", "W")?;
    let word = tokens.word("the altitude")?;
    let altitude = metres(word).map(|height| height + ALTITUDE_BASE_CENTIMETRES);
    let altitude = altitude.and_then(|height| u32::try_from(height).ok());
    let altitude = altitude.ok_or_else(|| fault("an altitude in metres", word))?;
    let mut sizes = [0; 3];
    for (size, default) in sizes.iter_mut().zip(DEFAULTS_CENTIMETRES) {
        *size = match tokens.take() {
            None => encoded(default),
            Some(Token { text, .. }) => {
                let size = metres(text).filter(|size| (0..=SIZE_MAX_CENTIMETRES).contains(size));
                encoded(size.ok_or_else(|| fault("a size in metres", text))?)
            }
        };
    }
    let [size, horizontal, vertical] = sizes;
    out.extend([0, size, horizontal, vertical]);
    out.extend(latitude.to_be_bytes());
    out.extend(longitude.to_be_bytes());
    out.extend(altitude.to_be_bytes());
    Ok(())
}

/// Degrees, minutes and seconds up to the letter of the hemisphere.
fn angle(tokens: &mut Tokens<'_>, most: i64, plus: &str, minus: &str) -> Result<u32, DnsFault> {
    let mut parts = Vec::new();
    let (word, sign) = loop {
        let word = tokens.word("the hemisphere")?;
        if word.eq_ignore_ascii_case(plus) {
            break (word, 1);
        }
        if word.eq_ignore_ascii_case(minus) {
            break (word, -1);
        }
        if parts.len() == 3 {
            return Err(fault(&format!("{plus} or {minus}"), word));
        }
        parts.push(word);
    };
    let mut parts = parts.into_iter();
    let whole = |word: &str, most: i64| {
        decimal(word, 0).filter(|n| *n <= most).ok_or_else(|| fault("an angle", word))
    };
    let degrees = whole(parts.next().ok_or_else(|| fault("an angle", word))?, most)?;
    let minutes = parts.next().map_or(Ok(0), |word| whole(word, 59))?;
    let seconds = match parts.next() {
        None => 0,
        Some(word) => decimal(word, 3).filter(|n| *n < 60_000).ok_or_else(|| fault("an angle", word))?,
    };
    let total = degrees * DEGREE + minutes * 60_000 + seconds;
    if total > most * DEGREE {
        return Err(fault(&format!("at most {most} degrees"), word));
    }
    u32::try_from(ORIGIN + sign * total).map_err(|_| fault("an angle", word))
}

/// A number without a sign in units of 10^-`places`.
fn decimal(word: &str, places: usize) -> Option<i64> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    let digits = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
    let cut_off = word.ends_with('.') || (places == 0 && word.contains('.'));
    if whole.is_empty()
        || whole.len() > 12
        || fraction.len() > places
        || cut_off
        || !digits(whole)
        || !digits(fraction)
    {
        return None;
    }
    format!("{whole}{fraction:0<places$}").parse().ok()
}

/// Metres with an optional `m`, in centimetres.
fn metres(word: &str) -> Option<i64> {
    let number = word.strip_suffix(['m', 'M']).unwrap_or(word);
    match number.strip_prefix('-') {
        Some(number) => decimal(number, 2).map(|n| -n),
        None => decimal(number, 2),
    }
}

/// A size as one digit and a power of ten, rounded down.
fn encoded(centimetres: i64) -> u8 {
    let (mut base, mut exponent) = (centimetres, 0_u8);
    while base > 9 {
        base /= 10;
        exponent += 1;
    }
    // `base` is one digit, and `exponent` is at most 9.
    (u8::try_from(base).unwrap_or(9) << 4) | exponent
}

pub(super) fn print(wire: [u8; 16], out: &mut String) -> Result<(), DnsFault> {
    let [version, size, horizontal, vertical, rest @ ..] = wire;
    let [a, b, c, d, e, f, g, h, i, j, k, l] = rest;
    if version != 0 {
        return Err(DnsFault::rdata(format!("LOC has version 0, not {version}")));
    }
    let latitude = i64::from(u32::from_be_bytes([a, b, c, d])) - ORIGIN;
    let longitude = i64::from(u32::from_be_bytes([e, f, g, h])) - ORIGIN;
    let altitude = i64::from(u32::from_be_bytes([i, j, k, l])) - ALTITUDE_BASE_CENTIMETRES;
    push_angle(latitude, 90, ["N", "S"], out)?;
    push_angle(longitude, 180, ["E", "W"], out)?;
    let sign = if altitude < 0 { "-" } else { "" };
    let altitude = altitude.abs();
    out.push_str(&format!("{sign}{}.{:02}m", altitude / 100, altitude % 100));
    for octet in [size, horizontal, vertical] {
        let (base, exponent) = (i64::from(octet >> 4), u32::from(octet & 15));
        if base > 9 || exponent > 9 || (base == 0 && exponent > 0) {
            return Err(DnsFault::rdata("a size is not one digit and a power of ten"));
        }
        let centimetres = base * 10_i64.pow(exponent);
        out.push_str(&format!(" {}.{:02}m", centimetres / 100, centimetres % 100));
    }
    Ok(())
}

fn push_angle(angle: i64, most: i64, [plus, minus]: [&str; 2], out: &mut String) -> Result<(), DnsFault> {
    if angle.abs() > most * DEGREE {
        return Err(DnsFault::rdata(format!("an angle is beyond {most} degrees")));
    }
    let hemisphere = if angle < 0 { minus } else { plus };
    let angle = angle.abs();
    let (degrees, minutes, seconds) = (angle / DEGREE, angle / 60_000 % 60, angle % 60_000);
    out.push_str(&format!("{degrees} {minutes} {}.{:03} {hemisphere} ", seconds / 1000, seconds % 1000));
    Ok(())
}
