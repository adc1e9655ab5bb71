//! Registration, renewal and the connection that speaks for this edge.

use std::sync::Arc;

use headwater_edge_wire::ids::{Epoch, Sequence};
use headwater_edge_wire::protocol::RegisterRequest;
use headwater_edge_wire::secret::SecretBytes;
use headwater_edge_wire::time::Timestamp;
use headwater_edge_wire::token::{AuthorityFingerprint, BootstrapToken};
use headwater_edge_wire::verify::Pins;

use crate::agent::{Shared, lock, now, pause};
use crate::backoff::Backoff;
use crate::control::{Control, ControlError};
use crate::disk;
use crate::heartbeat;
use crate::identity::{self, Identity, Registration, RegistrationFile};
use crate::status::renew_at;
use crate::tls::{ClientIdentity, Trust};

/// Registers, however long it takes, and gives back what to pin.
pub(crate) fn register_first(shared: &Shared, identity: &Identity) -> Pins {
    let mut backoff = Backoff::default();
    loop {
        match ensure_control(shared, identity) {
            Ok(registration) => {
                return Pins {
                    edge: identity.edge,
                    epoch: Epoch::ZERO,
                    through: Sequence::ZERO,
                    keys: registration.answer.keys,
                    keys_at: Timestamp::EPOCH,
                };
            }
            Err(error) => pause(shared, &mut backoff, error.code(), &error.to_string()),
        }
    }
}

/// Registers or renews where that is due, and has a client for this identity.
pub(crate) fn ensure_control(shared: &Shared, identity: &Identity) -> Result<Registration, ControlError> {
    let file = RegistrationFile::new(&shared.layout);
    let (known, bad) = file.read(&identity.state_key);
    bad.iter().for_each(|path| shared.damaged(&shared.layout.name(path), None));
    let url = url_of(shared, identity);
    let due = known.as_ref().is_none_or(|known| {
        let spread = u64::from_be_bytes(
            *blake3::hash(identity.csr.as_bytes()).as_bytes().first_chunk().unwrap_or(&[0; 8]),
        );
        now() >= renew_at(known.received_at, known.answer.not_after, spread)
    });
    let registration = match known {
        Some(known) if !due => known,
        Some(known) => {
            let renewed = connect(shared, identity, &url, Some(&known))
                .and_then(|control| register(&control, identity, None));
            match renewed {
                Ok(renewed) => keep(&file, identity, renewed)?,
                Err(error) => {
                    let mut status = shared.status();
                    status.alarm(
                        now(),
                        "renewal",
                        &format!("the identity ends at {}: {error}", known.answer.not_after),
                    );
                    known
                }
            }
        }
        None => {
            let token = identity::kept_token(&shared.layout).ok_or_else(|| ControlError::Answer {
                route: "POST /register",
                detail: "this edge has neither a certificate nor a token: enroll it with a new token".into(),
            })?;
            let registration = keep(&file, identity, register_with(shared, identity, token)?)?;
            identity::forget_token(&shared.layout);
            *lock(&shared.control) = None;
            registration
        }
    };
    if due || lock(&shared.control).is_none() {
        let control = connect(shared, identity, &url, Some(&registration))?;
        *lock(&shared.control) = Some(Arc::new(control));
    }
    shared.status().identity_until = Some(registration.answer.not_after);
    Ok(registration)
}

fn url_of(shared: &Shared, identity: &Identity) -> String {
    shared.settings.control.url.clone().unwrap_or_else(|| identity.control.clone())
}

/// Registers with a token, which tells whom to believe.
pub(crate) fn register_with(
    shared: &Shared,
    identity: &Identity,
    token: SecretBytes,
) -> Result<Registration, ControlError> {
    let parsed = BootstrapToken::parse(&token);
    let authority = parsed.map_err(|error| ControlError::Untrusted(error.to_string()))?.authority();
    let trust = configured_trust(shared)?.unwrap_or(Trust::Fingerprint(authority));
    let control = Control::new(&url_of(shared, identity), &trust, None)?;
    register(&control, identity, Some(token))
}

fn keep(
    file: &RegistrationFile,
    identity: &Identity,
    new: Registration,
) -> Result<Registration, ControlError> {
    match file.write(&identity.state_key, &new) {
        Ok(()) => Ok(new),
        Err(error) => Err(ControlError::Answer { route: "POST /register", detail: error.to_string() }),
    }
}

fn register(
    control: &Control,
    identity: &Identity,
    token: Option<SecretBytes>,
) -> Result<Registration, ControlError> {
    let request = RegisterRequest {
        edge: identity.edge,
        token,
        agent: heartbeat::agent(),
        csr: identity.csr.clone(),
        sealing_key: identity.sealing_public,
    };
    let answer = control.register(&request)?;
    if answer.edge != identity.edge {
        let detail = format!("it is for edge {}", answer.edge);
        return Err(ControlError::Answer { route: "POST /register", detail });
    }
    Ok(Registration { answer, received_at: now() })
}

fn configured_trust(shared: &Shared) -> Result<Option<Trust>, ControlError> {
    let settings = &shared.settings.control;
    if let Some(path) = &settings.ca_file {
        let bytes = disk::read(path, 1 << 20).map_err(|error| ControlError::Untrusted(error.to_string()))?;
        return Ok(Some(Trust::Authorities(String::from_utf8_lossy(&bytes).into_owned())));
    }
    Ok(settings.ca_sha256.as_deref().and_then(AuthorityFingerprint::parse).map(Trust::Fingerprint))
}

fn connect(
    shared: &Shared,
    identity: &Identity,
    url: &str,
    registration: Option<&Registration>,
) -> Result<Control, ControlError> {
    let answer = registration.map(|registration| &registration.answer);
    let own = answer.map(|answer| Trust::Authorities(answer.authorities.clone()));
    let trust = configured_trust(shared)?.or(own).unwrap_or(Trust::Authorities(String::new()));
    let client =
        answer.map(|answer| ClientIdentity { chain: &answer.certificate, key: identity.key_pem.expose() });
    Control::new(url, &trust, client)
}
