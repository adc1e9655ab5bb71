//! Enrolment: one certificate for one token, wherever it breaks off, and never more than policy gives.

use headwater_edge_wire::ids::EdgeId;
use headwater_edge_wire::protocol::RegisterAnswer;
use headwater_edge_wire::seal::SealingPrivateKey;
use headwater_edge_wire::secret::SecretBytes;
use headwater_edge_wire::token::{AuthorityFingerprint, BootstrapToken};
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
};
use reqwest::Method;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::agent::{Agent, csr};
use super::lab::Lab;

async fn register(agent: &Agent, token: &str) -> crate::support::Answer {
    agent.send(Method::POST, "register", agent.registration(Some(token))).await
}

async fn identities(lab: &Lab, edge: EdgeId) -> i64 {
    let query = sqlx::query_scalar("select count(*) from edge_identities where edge_id = $1");
    query.bind(edge.as_uuid()).fetch_one(lab.pool()).await.unwrap()
}

/// Registers, however busy the process is.
async fn insist(agent: &Agent, token: &str) -> RegisterAnswer {
    loop {
        let answer = register(agent, token).await;
        if answer.status.as_u16() != 503 {
            return serde_json::from_value(answer.expect(200).json()).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_gives_one_identity_to_a_thousand() {
    let lab = Lab::new().await;
    let (edge, token) = lab.edge("fra1").await;
    let agent = lab.agent(edge);
    let answers = futures_util::future::join_all((0..1_000).map(|_| insist(&agent, &token))).await;
    assert!(answers.iter().all(|answer| answer == &answers[0]), "one certificate for all");
    assert_eq!(identities(&lab, edge).await, 1);
    assert_eq!(lab.events(edge).await, ["edge.created", "edge.identity_issued"]);
    assert_eq!((answers[0].cells, answers[0].heartbeat_seconds), (2, 15));
    let shown = lab.show(edge).await;
    assert_eq!(shown["identity"]["not_after"], answers[0].not_after.to_string());
    assert_eq!((&shown["awaits_registration"], &shown["in_service"]), (&false.into(), &false.into()));
}

#[tokio::test]
async fn an_enrolment_goes_on_wherever_it_broke_off() {
    let (lab, _alone) = Lab::crashing().await;
    for (n, point) in ["enroll.token_take", "enroll.sign", "enroll.store", "enroll.reply"].iter().enumerate()
    {
        let (edge, token) = lab.edge(&format!("fra{n}")).await;
        let mut agent = lab.agent(edge);
        fail::cfg(*point, "1*panic").unwrap();
        register(&agent, &token).await.expect_problem(500, "internal");
        fail::remove(*point);
        if *point == "enroll.store" || *point == "enroll.reply" {
            let thief = lab.agent(edge);
            register(&thief, &token).await.expect_problem(403, "token_refused");
            assert_eq!(identities(&lab, edge).await, 1, "{point}");
        }
        let first = agent.enrol(&token).await;
        let again = register(&agent, &token).await.expect(200).json();
        assert_eq!(serde_json::from_value::<RegisterAnswer>(again).unwrap(), first, "{point}");
        assert_eq!(identities(&lab, edge).await, 1, "{point}");
        assert_eq!(lab.events(edge).await, ["edge.created", "edge.identity_issued"], "{point}");
        agent.beat(1).await.expect(200);
    }
}

#[tokio::test]
async fn a_token_is_for_one_edge_one_hour_one_pair_of_keys() {
    let lab = Lab::new().await;
    let (edge, token) = lab.edge("fra1").await;
    let (other, others) = lab.edge("fra2").await;
    let agent = lab.agent(edge);
    // It authenticates the listener too.
    let parsed = BootstrapToken::parse(&SecretBytes::new(token.clone().into_bytes())).unwrap();
    assert_eq!(parsed.authority(), AuthorityFingerprint::of(&lab.authority));
    let refused = |answer: crate::support::Answer| answer.expect_problem(403, "token_refused");
    refused(register(&agent, &others).await);
    refused(register(&lab.agent(EdgeId::from_uuid(uuid::Uuid::now_v7())), &token).await);
    refused(register(&agent, "hwe_nonsense").await);
    let expire = "update edge_tokens set expires_at = now() - interval '1 second' where edge_id = $1";
    sqlx::query(expire).bind(other.as_uuid()).execute(lab.pool()).await.unwrap();
    refused(register(&lab.agent(other), &others).await);
    lab.act(edge, "disable").await;
    register(&agent, &token).await.expect_problem(403, "edge_disabled");
    lab.act(edge, "enable").await;
    assert_eq!(identities(&lab, edge).await, 0);

    let mut agent = agent;
    agent.enrol(&token).await;
    // The same identity key, but another one that content is sealed to.
    let mut thief = lab.agent(edge);
    thief.sealing = SealingPrivateKey::generate().unwrap();
    thief.csr.clone_from(&agent.csr);
    refused(register(&thief, &token).await);
    register(&agent, &token).await.expect(200);
    agent.beat(1).await.expect(200);
    refused(register(&agent, &token).await);
}

/// What every identity is, whatever was asked for.
fn assert_is_the_template(pem: &str, edge: EdgeId, authority: &[u8]) {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let (_, issuer) = X509Certificate::from_der(authority).unwrap();
    assert_eq!(certificate.subject().to_string(), format!("CN={edge}"));
    assert_eq!(certificate.issuer(), issuer.subject());
    assert!(!certificate.is_ca() && certificate.subject_alternative_name().unwrap().is_none());
    let usage = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && !usage.server_auth && !usage.any && usage.other.is_empty());
    let usage = certificate.key_usage().unwrap().unwrap().value;
    assert!(usage.digital_signature() && !usage.key_cert_sign() && !usage.crl_sign());
    let (begins, ends) =
        (certificate.validity().not_before.timestamp(), certificate.validity().not_after.timestamp());
    assert_eq!(ends - begins, 7 * 86_400 + 300, "a week, backdated by five minutes");
    assert_eq!(certificate.extensions().len(), 5, "nothing else was taken over");
}

fn greedy(edge: EdgeId, key: &KeyPair) -> String {
    let names = vec!["www.example.com".to_owned(), "192.0.2.1".to_owned()];
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, edge.to_string());
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::Any];
    params.serialize_request(key).unwrap().pem().unwrap()
}

#[tokio::test]
async fn a_certificate_is_built_from_policy() {
    let lab = Lab::new().await;
    for (name, algorithm) in [("fra1", &PKCS_ECDSA_P256_SHA256), ("fra2", &PKCS_ED25519)] {
        let (edge, token) = lab.edge(name).await;
        let mut agent = lab.agent(edge);
        agent.key = KeyPair::generate_for(algorithm).unwrap();
        agent.csr = greedy(edge, &agent.key);
        let identity = agent.enrol(&token).await;
        assert_is_the_template(&identity.certificate, edge, &lab.authority);
        agent.beat(1).await.expect(200);
    }
}

#[tokio::test]
async fn what_is_no_proper_request_is_refused_by_its_reason() {
    let lab = Lab::new().await;
    let (edge, token) = lab.edge("fra1").await;
    let agent = lab.agent(edge);
    let name = edge.to_string();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let p384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
    let rsa = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
    let mut two = CertificateParams::default();
    two.distinguished_name.push(DnType::CommonName, name.clone());
    two.distinguished_name.push(DnType::OrganizationName, "Evil");
    let two = two.serialize_request(&key).unwrap().pem().unwrap();
    let good = csr(&name, &key);
    // The last octets of the body are those of the signature.
    let der = rustls::pki_types::CertificateSigningRequestDer::from_pem_slice(good.as_bytes()).unwrap();
    let mut broken = der.to_vec();
    *broken.last_mut().unwrap() ^= 1;
    let long = [der.to_vec(), vec![0]].concat();
    let pem = |der: &[u8]| {
        use base64::Engine;
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
    };
    let rows = [
        (csr("00000000-0000-7000-8000-000000000000", &key), "csr_name"),
        (csr("", &key), "csr_name"),
        (csr(&name.to_uppercase(), &key), "csr_name"),
        (two, "csr_name"),
        (csr(&name, &p384), "csr_key"),
        (csr(&name, &rsa), "csr_key"),
        (pem(&broken), "csr_proof"),
        (pem(&long), "csr_malformed"),
        (pem(b"x"), "csr_malformed"),
        (String::new(), "csr_malformed"),
    ];
    for (csr, code) in rows {
        let body = agent.registration_with(Some(&token), &csr);
        agent.send(Method::POST, "register", body).await.expect_problem(422, code);
    }
    assert_eq!(identities(&lab, edge).await, 0);
    // None of it cost the token.
    register(&agent, &token).await.expect(200);
}

#[tokio::test]
async fn an_identity_is_renewed_over_itself() {
    let lab = Lab::new().await;
    let mut agent = lab.enrolled("fra1").await;
    let other = lab.enrolled("fra2").await;
    agent.beat(1).await.expect(200);
    let old = agent.copy(1);
    // For another edge, or without any identity, nothing is given.
    let foreign = other.send(Method::POST, "register", agent.registration(None)).await;
    foreign.expect_problem(403, "other_edge");
    let nobody = lab.agent(agent.edge);
    let bare = nobody.send(Method::POST, "register", nobody.registration(None)).await;
    bare.expect_problem(401, "identity_needed");

    agent.key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    agent.csr = csr(&agent.edge.to_string(), &agent.key);
    let next = old.send(Method::POST, "register", agent.registration(None)).await.expect(200).json();
    let next: RegisterAnswer = serde_json::from_value(next).unwrap();
    assert_ne!(Some(&next), agent.identity.as_ref());
    agent.take(next);
    agent.beat(2).await.expect(200);
    assert_eq!(
        lab.events(agent.edge).await,
        ["edge.created", "edge.identity_issued", "edge.identity_issued"]
    );
    // What is under way with the old one still counts, so that a change of keys loses nothing.
    old.get("tasks").await.expect(200);
}

#[tokio::test]
async fn registrations_and_requests_have_a_rate() {
    let lab = Lab::with("registrations_per_hour = 10\nrequests_per_minute = 2\n").await;
    let (edge, token) = lab.edge("fra1").await;
    let mut agent = lab.agent(edge);
    for _ in 0..9 {
        register(&agent, "hwe_wrong").await.expect_problem(403, "token_refused");
    }
    agent.enrol(&token).await;
    let stranger = lab.agent(edge);
    let refused = register(&stranger, &token).await;
    assert!(refused.header("retry-after").parse::<u32>().unwrap() >= 300);
    refused.expect_problem(429, "rate_limited");
    for n in 1..=2 {
        agent.beat(n).await.expect(200);
    }
    agent.beat(3).await.expect_problem(429, "rate_limited");
}
