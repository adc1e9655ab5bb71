//! `$GENERATE` (BIND ARM, 8): a range of numbers, each put into an owner and into data.

use super::GENERATED_MAX_RECORDS;
use super::entry::Told;

/// The largest number of a range.
const NUMBER_MAX: u32 = i32::MAX as u32;
/// The widest number that is padded.
const WIDTH_MAX_CHARS: usize = 63;

fn bad(detail: impl Into<String>) -> Told {
    ("bad_generate", detail.into())
}

/// The numbers of a range `start-stop[/step]`.
pub(super) fn range(word: &str) -> Result<impl Iterator<Item = u32>, Told> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok()).flatten().filter(|number| *number <= NUMBER_MAX)
    };
    let (bounds, step) = word.split_once('/').unwrap_or((word, "1"));
    let (start, stop) = bounds.split_once('-').unwrap_or((bounds, ""));
    let read = (number(start), number(stop), number(step));
    let (Some(start), Some(stop), Some(step @ 1..)) = read else {
        return Err(bad("the range is `start-stop` or `start-stop/step`, such as `1-254` or `0-100/2`"));
    };
    if start > stop {
        return Err(bad(format!("the range {start}-{stop} is empty")));
    }
    let count = ((stop - start) / step) as usize + 1;
    if count > GENERATED_MAX_RECORDS {
        return Err(bad(format!("the range has {count} numbers: at most {GENERATED_MAX_RECORDS}")));
    }
    Ok((start..=stop).step_by(usize::try_from(step).unwrap_or(usize::MAX)))
}

/// A word with a number put in for each `$`.
pub(super) fn fill(word: &str, number: u32) -> Result<String, Told> {
    let mut out = String::with_capacity(word.len() + 8);
    let mut rest = word.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' => {
                // `\$` is the character; every other escape stays what it is.
                match rest.next() {
                    Some('$') => out.push('$'),
                    Some(next) => out.extend([c, next]),
                    None => out.push(c),
                }
            }
            '$' if rest.peek() == Some(&'$') => {
                rest.next();
                out.push('$');
            }
            '$' if rest.peek() == Some(&'{') => {
                rest.next();
                let mut modifier = String::new();
                loop {
                    match rest.next() {
                        Some('}') => break,
                        Some(c) if modifier.len() <= WIDTH_MAX_CHARS => modifier.push(c),
                        _ => return Err(bad("a `${` is not closed by a `}`")),
                    }
                }
                out.push_str(&modified(&modifier, number)?);
            }
            '$' => out.push_str(&number.to_string()),
            c => out.push(c),
        }
    }
    Ok(out)
}

/// A number as `offset[,width[,base]]` says.
fn modified(modifier: &str, number: u32) -> Result<String, Told> {
    let usage = || {
        bad(format!(
            "`${{{}}}`: write `${{offset,width,base}}` with a base of d, o, x, X, n or N",
            modifier.escape_debug()
        ))
    };
    let mut parts = modifier.split(',');
    let offset: i64 = parts.next().and_then(|text| text.parse().ok()).ok_or_else(usage)?;
    let width: usize = parts.next().map_or(Ok(0), str::parse).map_err(|_| usage())?;
    let base = parts.next().unwrap_or("d");
    if parts.next().is_some() || width > WIDTH_MAX_CHARS {
        return Err(usage());
    }
    let value = i64::from(number).saturating_add(offset);
    let value = u32::try_from(value).ok().filter(|value| *value <= NUMBER_MAX);
    let value = value.ok_or_else(|| bad(format!("{number} with the offset {offset} is out of range")))?;
    Ok(match base {
        "d" => format!("{value:0width$}"),
        "o" => format!("{value:0width$o}"),
        "x" => format!("{value:0width$x}"),
        "X" => format!("{value:0width$X}"),
        "n" => nibbles(&format!("{value:x}"), width),
        "N" => nibbles(&format!("{value:X}"), width),
        _ => return Err(usage()),
    })
}

/// Hexadecimal digits, the last one first, with dots between them; `width` counts the dots too.
fn nibbles(digits: &str, width: usize) -> String {
    let wanted = width.div_ceil(2).max(digits.len());
    let digits: Vec<String> = format!("{digits:0>wanted$}").chars().rev().map(String::from).collect();
    digits.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_modifiers() {
        assert_eq!(range("0-4/2").unwrap().collect::<Vec<_>>(), [0, 2, 4]);
        assert_eq!(range("7-7").unwrap().collect::<Vec<_>>(), [7]);
        assert_eq!(range(&format!("1-{GENERATED_MAX_RECORDS}")).unwrap().count(), GENERATED_MAX_RECORDS);
        let more = format!("0-{GENERATED_MAX_RECORDS}");
        for wrong in
            ["", "1", "-1", "1-", "2-1", "1-2/0", "1-2-3", "1-99999999999", "a-b", "0-2147483647", &more]
        {
            assert!(range(wrong).is_err(), "{wrong}");
        }
        for (word, text) in [
            ("host$", "host10"),
            ("$.$$.\\$", "10.$.$"),
            ("a\\\\$", "a\\\\10"),
            ("d${10,3,d}", "d020"),
            ("${-4}", "6"),
            ("${0,4,x}", "000a"),
            ("${0,2,X}", "0A"),
            ("${0,3,o}", "012"),
            ("${0,7,n}", "a.0.0.0"),
            ("${255,0,N}", "9.0.1"),
        ] {
            assert_eq!(fill(word, 10).unwrap(), text, "{word}");
        }
        for wrong in ["${", "${}", "${0,99}", "${0,1,z}", "${0,1,d,1}", "${-11}", "${x}"] {
            assert!(fill(wrong, 10).is_err(), "{wrong}");
        }
    }
}
