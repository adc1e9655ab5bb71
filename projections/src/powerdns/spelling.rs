//! How PowerDNS is told of a record: as it is, but for what its version 4.7 has no words for.

use headwater_events::dns::{DomainName, Rdata, RrType};
use std::borrow::Cow;

/// Types that PowerDNS has no text form for: X25, ISDN, RT, PX. It takes their octets (RFC 3597).
const WITHOUT_TEXT: [u16; 4] = [19, 20, 21, 26];
/// SVCB and HTTPS.
const WITH_PARAMETERS: [u16; 2] = [64, 65];
/// Parameters that came after it, and what they are called by number.
const NEW_PARAMETERS: [(&str, &str); 2] = [("dohpath", "key7"), ("ohttp", "key8")];

/// The type and the content of a row.
pub(super) fn spelled<'c>(
    rrtype: RrType,
    content: &'c str,
    zone: &DomainName,
) -> (Cow<'static, str>, Cow<'c, str>) {
    if WITHOUT_TEXT.contains(&rrtype.code())
        && let Ok(rdata) = Rdata::parse(rrtype, content, zone)
    {
        let octets = format!("\\# {} {}", rdata.wire().len(), hex::encode(rdata.wire()));
        return (format!("TYPE{}", rrtype.code()).into(), octets.into());
    }
    if WITH_PARAMETERS.contains(&rrtype.code()) {
        return (rrtype.mnemonic(), by_number(content));
    }
    (rrtype.mnemonic(), content.into())
}

/// Parameters with the numbers of those keys that are too new. Canonical text has one blank between its words, and
/// blanks within a word in quotes alone.
fn by_number(content: &str) -> Cow<'_, str> {
    if !NEW_PARAMETERS.iter().any(|(name, _)| content.contains(name)) {
        return content.into();
    }
    let (mut out, mut is_quoted, mut is_escaped) = (String::with_capacity(content.len()), false, false);
    for (at, c) in content.char_indices() {
        let begins = !is_quoted && out.ends_with(' ');
        let rest = content.get(at..).unwrap_or_default();
        let named = NEW_PARAMETERS.iter().find(|(name, _)| {
            let after = rest.strip_prefix(name);
            begins && after.is_some_and(|after| after.is_empty() || after.starts_with(['=', ' ']))
        });
        if let Some((name, number)) = named {
            out.push_str(number);
            out.push_str(&by_number(rest.strip_prefix(name).unwrap_or_default()));
            return out.into();
        }
        is_quoted ^= c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        out.push(c);
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_powerdns_cannot_read_is_put_otherwise() {
        let zone = DomainName::parse("example.com").unwrap();
        let ty = |name: &str| RrType::parse(name).unwrap();
        for (name, content, row) in [
            ("A", "192.0.2.1", ("A", "192.0.2.1")),
            ("RT", "10 a.example.net.", ("TYPE21", "\\# 17 000a0161076578616d706c65036e657400")),
            ("TYPE65280", "\\# 1 00", ("TYPE65280", "\\# 1 00")),
            ("HTTPS", "1 . alpn=h2", ("HTTPS", "1 . alpn=h2")),
            ("SVCB", "1 . alpn=h2 dohpath=/q{?dns} ohttp", ("SVCB", "1 . alpn=h2 key7=/q{?dns} key8")),
            ("SVCB", "1 . ohttp key667=\"a dohpath=b\"", ("SVCB", "1 . key8 key667=\"a dohpath=b\"")),
            (
                "SVCB",
                "1 dohpath.example. key667=\"\\\" ohttp\"",
                ("SVCB", "1 dohpath.example. key667=\"\\\" ohttp\""),
            ),
        ] {
            let (rrtype, content) = spelled(ty(name), content, &zone);
            assert_eq!((rrtype.as_ref(), content.as_ref()), row, "{name}");
        }
    }
}
