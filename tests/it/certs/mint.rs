//! An authority of one test, and what it signs: good certificates, and bad ones in every way.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SignatureAlgorithm, date_time_ymd,
};
use serde_json::{Value, json};

/// Somebody who signs certificates.
pub struct Ca {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
#[derive(Clone)]
pub struct Leaf {
    pub pem: String,
    pub key: String,
}

pub fn key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2120, 1, 1));
    params
}

impl Ca {
    pub fn root(name: &str) -> Self {
        let (params, key) = (ca_params(name), key());
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    pub fn below(&self, name: &str) -> Self {
        self.below_as(name, |_| {})
    }

    pub fn below_as(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let (mut params, key) = (ca_params(name), key());
        change(&mut params);
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// One that has the same name and another key.
    pub fn impostor(name: &str) -> Self {
        Self::root(name)
    }

    pub fn leaf(&self, names: &[&str]) -> Leaf {
        self.leaf_as(names, key(), |_| {})
    }

    pub fn leaf_of(&self, names: &[&str], algorithm: &'static SignatureAlgorithm) -> Leaf {
        self.leaf_as(names, KeyPair::generate_for(algorithm).unwrap(), |_| {})
    }

    pub fn leaf_as(&self, names: &[&str], key: KeyPair, change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let mut params = leaf_params(names);
        change(&mut params);
        Leaf { pem: params.signed_by(&key, &self.issuer).unwrap().pem(), key: key.serialize_pem() }
    }
}

fn leaf_params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = named("a server");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2120, 1, 1));
    params
}

/// One that nobody else signed.
pub fn self_signed(names: &[&str]) -> Leaf {
    let key = key();
    Leaf { pem: leaf_params(names).self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}

impl Leaf {
    /// The body that brings it.
    pub fn body(&self, chain: Option<&str>) -> Value {
        json!({"certificate_pem": self.pem, "chain_pem": chain, "private_key_pem": self.key})
    }
}
