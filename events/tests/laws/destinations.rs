//! Where edges may connect to: every range of the special-purpose registries, at both of its ends and just outside.

use std::net::IpAddr;

use headwater_events::domain::destination::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

type Range = (&'static str, &'static str, Special, Option<&'static str>, Option<&'static str>);

/// First and last address of each range, and the neighbours that are none of it.
const RANGES: &[Range] = &[
    ("0.0.0.0", "0.255.255.255", Special::Unspecified, None, Some("1.0.0.0")),
    ("10.0.0.0", "10.255.255.255", Special::Private, Some("9.255.255.255"), Some("11.0.0.0")),
    ("100.64.0.0", "100.127.255.255", Special::CarrierNat, Some("100.63.255.255"), Some("100.128.0.0")),
    ("127.0.0.0", "127.255.255.255", Special::Loopback, Some("126.255.255.255"), Some("128.0.0.0")),
    ("169.254.0.0", "169.254.255.255", Special::LinkLocal, Some("169.253.255.255"), Some("169.255.0.0")),
    ("169.254.169.254", "169.254.169.254", Special::LinkLocal, None, None),
    ("172.16.0.0", "172.31.255.255", Special::Private, Some("172.15.255.255"), Some("172.32.0.0")),
    ("192.0.0.0", "192.0.0.8", Special::Reserved, Some("191.255.255.255"), Some("192.0.0.9")),
    ("192.0.0.11", "192.0.0.255", Special::Reserved, Some("192.0.0.10"), Some("192.0.1.0")),
    ("192.0.2.0", "192.0.2.255", Special::Documentation, Some("192.0.1.255"), Some("192.0.3.0")),
    ("192.88.99.0", "192.88.99.255", Special::Reserved, Some("192.88.98.255"), Some("192.88.100.0")),
    ("192.168.0.0", "192.168.255.255", Special::Private, Some("192.167.255.255"), Some("192.169.0.0")),
    ("198.18.0.0", "198.19.255.255", Special::Benchmarking, Some("198.17.255.255"), Some("198.20.0.0")),
    ("198.51.100.0", "198.51.100.255", Special::Documentation, Some("198.51.99.255"), Some("198.51.101.0")),
    ("203.0.113.0", "203.0.113.255", Special::Documentation, Some("203.0.112.255"), Some("203.0.114.0")),
    ("224.0.0.0", "239.255.255.255", Special::Multicast, Some("223.255.255.255"), None),
    ("240.0.0.0", "255.255.255.255", Special::Reserved, None, None),
    ("::", "::", Special::Unspecified, None, None),
    ("::1", "::1", Special::Loopback, None, None),
    ("::2", "::ffff:ffff", Special::Translated, None, Some("0:0:0:0:0:1::")),
    (
        "::ffff:0.0.0.0",
        "::ffff:255.255.255.255",
        Special::Translated,
        Some("::fffe:ffff:ffff"),
        Some("0:0:0:0:1::"),
    ),
    ("64:ff9b::10.0.0.1", "64:ff9b::10.0.0.1", Special::Translated, None, Some("64:ff9b::8.8.8.8")),
    ("64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", Special::Translated, None, None),
    ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", Special::Translated, None, Some("64:ff9b:2::")),
    ("100::", "100::1:ffff:ffff:ffff:ffff", Special::Reserved, None, Some("100:0:0:2::")),
    ("2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", Special::Translated, Some("2000:ffff::"), None),
    ("2001:1::", "2001:1::", Special::Reserved, None, Some("2001:1::1")),
    ("2001:1::4", "2001:1:ffff::", Special::Reserved, Some("2001:1::3"), None),
    ("2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff", Special::Benchmarking, None, None),
    ("2001:2:1::", "2001:2:ffff::", Special::Reserved, None, Some("2001:3::")),
    ("2001:4::", "2001:4:111::", Special::Reserved, Some("2001:3:ffff::"), Some("2001:4:112::")),
    ("2001:4:113::", "2001:1f:ffff::", Special::Reserved, Some("2001:4:112:ffff::"), Some("2001:20::")),
    ("2001:40::", "2001:1ff:ffff::", Special::Reserved, Some("2001:3f:ffff::"), Some("2001:200::")),
    ("2001:db8::", "2001:db8:ffff::", Special::Documentation, Some("2001:db7:ffff::"), Some("2001:db9::")),
    ("2002::", "2002:ffff::", Special::Translated, Some("2001:ffff::"), Some("2003::")),
    ("3fff::", "3fff:fff:ffff::", Special::Documentation, Some("3ffe:ffff::"), Some("3fff:1000::")),
    ("5f00::", "5f00:ffff::", Special::Reserved, Some("5eff::"), Some("5f01::")),
    ("fc00::", "fdff:ffff::", Special::Private, Some("fbff::"), Some("fe00::")),
    ("fe80::", "febf:ffff::", Special::LinkLocal, Some("fe7f::"), None),
    ("fec0::", "feff:ffff::", Special::Reserved, None, None),
    ("ff00::", "ffff:ffff::", Special::Multicast, None, None),
];

/// What the registries call globally reachable inside what they set apart.
const REACHABLE: &[&str] = &[
    "192.0.0.9",
    "192.0.0.10",
    "192.31.196.1",
    "192.52.193.1",
    "192.175.48.1",
    "2001:1::1",
    "2001:1::2",
    "2001:1::3",
    "2001:3::1",
    "2001:4:112::1",
    "2001:20::1",
    "2001:30::1",
    "2620:4f:8000::1",
    "64:ff9b::1.1.1.1",
    "1.1.1.1",
    "2606:4700::1111",
];

#[test]
fn every_special_range_is_refused_and_nothing_beside_it() {
    for (first, last, expected, before, after) in RANGES {
        for inside in [first, last] {
            assert_eq!(special(ip(inside)), Some(*expected), "{inside}");
        }
        for outside in [before, after].into_iter().flatten() {
            let found = special(ip(outside));
            assert!(
                found != Some(*expected) || RANGES.iter().any(|row| row.0 == *outside),
                "{outside} is {found:?}"
            );
        }
    }
    for address in REACHABLE {
        assert_eq!(special(ip(address)), None, "{address}");
    }
    for outside in [
        "9.255.255.255",
        "100.128.0.0",
        "172.32.0.0",
        "192.0.1.255",
        "198.20.0.0",
        "2001:200::",
        "3fff:1000::",
    ] {
        assert_eq!(special(ip(outside)), None, "{outside}");
    }
}

#[test]
fn private_by_list_loopback_by_its_setting_the_platform_never() {
    let mut policy = Destinations::default();
    for refused in ["10.1.2.3", "127.0.0.1", "::1", "fd00::1", "169.254.169.254"] {
        assert!(policy.permit(ip(refused)).is_err(), "{refused}");
    }
    policy.allow_private = vec!["10.1.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()];
    for (address, is_permitted) in
        [("10.1.2.3", true), ("10.2.0.0", false), ("fd12::1", true), ("fc00::1", false)]
    {
        assert_eq!(policy.permit(ip(address)).is_ok(), is_permitted, "{address}");
    }
    // The list opens private ranges alone, and an address alone, not what a translator makes of it.
    policy.allow_private = ["127.0.0.0/8", "169.254.0.0/16", "10.1.0.0/16", "::/0", "0.0.0.0/0"]
        .into_iter()
        .map(|text| text.parse().unwrap())
        .collect();
    for refused in ["127.0.0.1", "169.254.169.254", "64:ff9b::10.1.2.3", "::ffff:10.1.2.3", "100.64.0.1"] {
        assert!(policy.permit(ip(refused)).is_err(), "{refused}");
    }
    policy.unsafe_allow_loopback = true;
    for (address, is_permitted) in
        [("127.0.0.1", true), ("::1", true), ("::ffff:127.0.0.1", false), ("0.0.0.0", false)]
    {
        assert_eq!(policy.permit(ip(address)).is_ok(), is_permitted, "{address}");
    }
    policy.platform = vec!["127.0.0.9".parse().unwrap(), "8.8.8.0/24".parse().unwrap()];
    for address in ["127.0.0.9", "8.8.8.8", "64:ff9b::8.8.8.8"] {
        assert_eq!(policy.permit(ip(address)), Err(Special::Platform), "{address}");
    }
}

#[test]
fn a_network_has_one_spelling() {
    for good in ["10.0.0.0/8", "0.0.0.0/0", "::/0", "fd00::/8", "192.0.2.1", "2001:db8::1/128"] {
        assert!(good.parse::<Network>().is_ok(), "{good}");
    }
    for bad in ["10.0.0.1/8", "10.0.0.0/33", "fd00::1/8", "10/8", "", "10.0.0.0/-1", "::/129", "10.0.0.0/"] {
        assert!(bad.parse::<Network>().is_err(), "{bad}");
    }
}
