//! What may be brought and what not: one row for each fault, planted alone, with where it is told.

use headwater::certificate::{self, Sent};
use headwater_events::time::Timestamp;
use rcgen::{
    BasicConstraints, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose,
    NameConstraints, PKCS_ECDSA_P384_SHA384, PKCS_ECDSA_P521_SHA512, PKCS_ED25519, PKCS_RSA_SHA256,
    RsaKeySize, date_time_ymd,
};
use zeroize::Zeroizing;

use super::mint::{Ca, Leaf, key, self_signed};

const WWW: &[&str] = &["www.example.test"];

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("fixtures/", $name))
    };
}

fn now() -> Timestamp {
    chrono::Utc::now().into()
}

/// Where each fault stands and what it is, or the warnings.
fn told(leaf: &str, chain: Option<&str>, key: &str) -> Result<Vec<String>, Vec<String>> {
    let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let sent = Sent {
        certificate: Some(leaf.to_owned()),
        chain: chain.map(str::to_owned),
        key: Some(Zeroizing::new(key.to_owned())),
        faults: Vec::new(),
    };
    match certificate::check(&sent, "example.test", now()) {
        Ok(checked) => Ok(checked.warnings().to_vec()),
        Err(refused) => {
            for fault in &refused.faults {
                let inside = |line: &&str| line.len() > 20 && fault.detail.contains(line);
                assert!(!key.lines().any(|line| inside(&line)), "a fault tells of the key: {}", fault.detail);
            }
            let told = refused.faults.iter().map(|fault| format!("{} {}", fault.pointer, fault.code));
            Err(told.collect())
        }
    }
}

struct World {
    root: Ca,
    middle: Ca,
    issuer: Ca,
    chain: String,
}

fn world() -> World {
    let root = Ca::root("Root");
    let middle = root.below("Middle");
    let issuer = middle.below("Issuer");
    let chain = format!("{}{}", issuer.pem, middle.pem);
    World { root, middle, issuer, chain }
}

#[test]
fn what_edges_can_show_is_taken() {
    let on = world();
    let leaf = on.issuer.leaf(WWW);
    assert_eq!(told(&leaf.pem, Some(&on.chain), &leaf.key), Ok(vec![]));
    let rsa = |size| {
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, size).unwrap();
        on.issuer.leaf_as(WWW, key, |_| {})
    };
    let of_file = |text| {
        let leaf = on.issuer.leaf_as(WWW, KeyPair::from_pem(text).unwrap(), |_| {});
        Leaf { key: text.to_owned(), ..leaf }
    };
    let sec1 = fixture!("sec1.key.pem");
    let bare = sec1.split_once("-----END EC PARAMETERS-----\n").unwrap().1;
    let sec1 = Leaf { key: sec1.to_owned(), ..of_file(bare) };
    for (what, leaf) in [
        ("P-384", on.issuer.leaf_of(WWW, &PKCS_ECDSA_P384_SHA384)),
        ("Ed25519", on.issuer.leaf_of(WWW, &PKCS_ED25519)),
        ("RSA 2048", rsa(RsaKeySize::_2048)),
        ("RSA 4096", rsa(RsaKeySize::_4096)),
        ("PKCS #1", of_file(fixture!("rsa.key.pem"))),
        ("SEC 1 with its curve before it", sec1),
    ] {
        assert_eq!(told(&leaf.pem, Some(&on.chain), &leaf.key), Ok(vec![]), "{what}");
    }
    let crlf = |text: &str| text.replace('\n', "\r\n");
    assert_eq!(told(&crlf(&leaf.pem), Some(&crlf(&on.chain)), &crlf(&leaf.key)), Ok(vec![]), "CRLF");
    let talk = format!("subject=CN = a server\nissuer=CN = Issuer\n\n  {}", leaf.pem);
    assert_eq!(told(&talk, Some(&on.chain), &leaf.key), Ok(vec![]), "text around a block");
    let full = format!("{}{}", leaf.pem, on.chain);
    assert_eq!(told(&leaf.pem, Some(&full), &leaf.key), Ok(vec![]), "a chain that begins with the leaf");
}

#[test]
fn what_its_owner_may_want_to_know_is_a_warning() {
    let on = world();
    let leaf = on.issuer.leaf(WWW);
    let one = |leaf: &Leaf, chain: Option<&str>| {
        let warnings = told(&leaf.pem, chain, &leaf.key).unwrap();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        warnings.into_iter().next().unwrap()
    };
    let rooted = format!("{}{}", on.chain, on.root.pem);
    assert!(one(&leaf, Some(&rooted)).starts_with("CN=Root is self-signed and not shown"));
    assert!(one(&leaf, None).starts_with("there is no chain"));
    assert!(one(&leaf, Some("\n")).starts_with("there is no chain"));
    assert!(one(&self_signed(WWW), None).starts_with("the certificate is self-signed"));
    let soon = chrono::Utc::now() + chrono::Duration::days(3);
    let soon = date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(soon.timestamp().unsigned_abs());
    let ending = on.issuer.leaf_as(WWW, key(), |params| params.not_after = soon);
    assert!(one(&ending, Some(&on.chain)).starts_with("the certificate ends at "));
}

/// What is told: where each fault stands, and its code.
type Told = &'static [&'static str];
/// Leaf, chain and key with one fault in them, and what is told of it.
type Row = (&'static str, String, Option<String>, String, Told);

fn of_the_texts(on: &World) -> Vec<Row> {
    let leaf = on.issuer.leaf(WWW);
    let (pem, key) = (|| leaf.pem.clone(), || leaf.key.clone());
    let chain = || Some(on.chain.clone());
    let cut = leaf.pem.rsplit_once("-----END").unwrap().0.to_owned();
    let padded = |text: &str, most: usize| format!("{}\n{text}", "#".repeat(most));
    let long = on.chain.repeat(6);
    vec![
        ("no PEM", "MIIB".into(), chain(), key(), &["/certificate_pem invalid_pem"]),
        ("no end", cut, chain(), key(), &["/certificate_pem invalid_pem"]),
        ("no base64", pem().replacen("MII", "M%I", 1), chain(), key(), &["/certificate_pem invalid_pem"]),
        ("empty", String::new(), chain(), key(), &["/certificate_pem invalid_pem"]),
        (
            "no DER",
            "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n".into(),
            chain(),
            key(),
            &["/certificate_pem invalid_certificate"],
        ),
        ("a long leaf", padded(&pem(), 16 << 10), chain(), key(), &["/certificate_pem too_large"]),
        ("a long key", pem(), chain(), padded(&key(), 16 << 10), &["/private_key_pem too_large"]),
        ("a long chain", pem(), Some(padded(&on.chain, 64 << 10)), key(), &["/chain_pem too_large"]),
        ("many in the chain", pem(), Some(long), key(), &["/chain_pem too_many_certificates"]),
        ("two leaves", pem() + &on.chain, None, key(), &["/certificate_pem extra_block"]),
        ("the key before the leaf", key() + &pem(), chain(), key(), &["/certificate_pem extra_block"]),
        ("the key in the chain", pem(), Some(on.chain.clone() + &key()), key(), &["/chain_pem extra_block"]),
        ("the leaf beside the key", pem(), chain(), key() + &pem(), &["/private_key_pem extra_block"]),
        ("two keys", pem(), chain(), key().repeat(2), &["/private_key_pem extra_block"]),
        (
            "a request",
            pem().replace("CERTIFICATE", "CERTIFICATE REQUEST"),
            chain(),
            key(),
            &["/certificate_pem extra_block"],
        ),
        ("no key", pem(), chain(), "secret".into(), &["/private_key_pem invalid_pem"]),
        (
            "an encrypted key",
            pem(),
            chain(),
            fixture!("encrypted8.key.pem").into(),
            &["/private_key_pem encrypted_key"],
        ),
        (
            "a key that is encrypted in the old way",
            pem(),
            chain(),
            fixture!("encrypted1.key.pem").into(),
            &["/private_key_pem encrypted_key"],
        ),
        (
            "a key that is none",
            pem(),
            chain(),
            "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n".into(),
            &["/private_key_pem invalid_key"],
        ),
        ("another key", pem(), chain(), on.issuer.leaf(WWW).key, &["/private_key_pem key_mismatch"]),
    ]
}

fn of_the_leaf(on: &World) -> Vec<Row> {
    let with =
        |what, leaf: Leaf, told: Told| -> Row { (what, leaf.pem, Some(on.chain.clone()), leaf.key, told) };
    let changed = |change: fn(&mut rcgen::CertificateParams)| on.issuer.leaf_as(WWW, key(), change);
    let (small, small_key) = (fixture!("small.pem").to_owned(), fixture!("small.key.pem").to_owned());
    let many: Vec<String> =
        (0..=certificate::NAMES_MAX_COUNT).map(|n| format!("h{n}.example.test")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    vec![
        with("no names", changed(|p| p.subject_alt_names.clear()), &["/certificate_pem no_names"]),
        with("addresses alone", on.issuer.leaf(&["192.0.2.1"]), &["/certificate_pem no_names"]),
        with("too many names", on.issuer.leaf(&many), &["/certificate_pem too_many_names"]),
        with("over", changed(|p| p.not_after = date_time_ymd(2021, 1, 1)), &["/certificate_pem expired"]),
        with(
            "not yet",
            changed(|p| p.not_before = date_time_ymd(2110, 1, 1)),
            &["/certificate_pem not_yet_valid"],
        ),
        with(
            "for clients",
            changed(|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]),
            &["/certificate_pem wrong_usage"],
        ),
        with(
            "no signatures",
            changed(|p| p.key_usages = vec![KeyUsagePurpose::KeyEncipherment]),
            &["/certificate_pem wrong_usage"],
        ),
        with(
            "an issuer's",
            changed(|p| p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
            &["/certificate_pem not_a_leaf"],
        ),
        with(
            "P-521",
            on.issuer.leaf_of(WWW, &PKCS_ECDSA_P521_SHA512),
            &["/certificate_pem unsupported_key", "/private_key_pem unsupported_key"],
        ),
        (
            "RSA 1024",
            small,
            None,
            small_key,
            &["/certificate_pem unsupported_key", "/private_key_pem invalid_key"],
        ),
    ]
}

fn of_the_chain(on: &World) -> Vec<Row> {
    let leaf = on.issuer.leaf(WWW);
    let with = |what, chain: String, told: Told| -> Row {
        (what, leaf.pem.clone(), Some(chain), leaf.key.clone(), told)
    };
    let below = |what, middle: &Ca, issuer: &Ca, told: Told| -> Row {
        let leaf = issuer.leaf(WWW);
        (what, leaf.pem, Some(format!("{}{}", issuer.pem, middle.pem)), leaf.key, told)
    };
    let old = on.middle.below_as("Old", |p| p.not_after = date_time_ymd(2021, 1, 1));
    let no_ca = on.middle.below_as("No CA", |p| p.is_ca = IsCa::ExplicitNoCa);
    let no_sign = on.middle.below_as("No signing", |p| p.key_usages = vec![KeyUsagePurpose::CrlSign]);
    let short = on.root.below_as("Short", |p| p.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)));
    let narrow = on.root.below_as("Narrow", |p| {
        let permitted_subtrees = vec![GeneralSubtree::DnsName("other.test".into())];
        p.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees: vec![] });
    });
    let (below_short, below_narrow) = (short.below("Below short"), narrow.below("Below narrow"));
    vec![
        with("a gap", on.middle.pem.clone(), &["/chain_pem broken_chain"]),
        with(
            "another order",
            format!("{}{}", on.middle.pem, on.issuer.pem),
            &["/chain_pem broken_chain", "/chain_pem broken_chain"],
        ),
        with("somebody else's", Ca::root("Else").pem, &["/chain_pem broken_chain"]),
        with("an impostor's", Ca::impostor("Issuer").pem, &["/chain_pem bad_signature"]),
        with(
            "no DER",
            format!("{}-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n", on.issuer.pem),
            &["/chain_pem invalid_certificate"],
        ),
        below("an issuer that is over", &on.middle, &old, &["/chain_pem expired"]),
        below("an issuer that is none", &on.middle, &no_ca, &["/chain_pem not_an_issuer"]),
        below("an issuer that may not sign", &on.middle, &no_sign, &["/chain_pem not_an_issuer"]),
        below("longer than may be", &short, &below_short, &["/chain_pem broken_chain"]),
        below("for other names", &narrow, &below_narrow, &["/chain_pem broken_chain"]),
        (
            "SHA-1",
            fixture!("sha1.pem").into(),
            Some(fixture!("sha1ca.pem").into()),
            fixture!("sha1.key.pem").into(),
            &["/chain_pem unsupported_signature"],
        ),
    ]
}

#[test]
fn each_fault_is_told_where_it_stands() {
    let on = world();
    let rows = [of_the_texts(&on), of_the_leaf(&on), of_the_chain(&on)].concat();
    let mut wrong = Vec::new();
    for (what, leaf, chain, key, expected) in rows {
        let expected: Vec<String> = expected.iter().map(|&one| one.to_owned()).collect();
        let told = told(&leaf, chain.as_deref(), &key);
        if told != Err(expected) {
            wrong.push(format!("{what}: {told:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_fault_is_told_at_once() {
    let on = world();
    let leaf = on.issuer.leaf_as(&["x.test"], key(), |params| {
        params.not_after = date_time_ymd(2021, 1, 1);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let expected = [
        "/certificate_pem wrong_usage",
        "/certificate_pem expired",
        "/private_key_pem encrypted_key",
        "/chain_pem broken_chain",
    ];
    let told = told(&leaf.pem, Some(&on.middle.pem), fixture!("encrypted8.key.pem"));
    assert_eq!(told, Err(expected.map(str::to_owned).to_vec()));
}
