//! Enrolling a host: the first time, and again with other keys after its identity was ended or is not trusted.
//!
//! What must hold: an enrolment that fails takes nothing away from an identity that still counts; wherever one breaks
//! off, it goes on with the same keys and the same token; what is served does not notice.

use std::sync::Arc;

use headwater_edge_wire::ids::EdgeId;
use headwater_edge_wire::secret::SecretBytes;
use headwater_edge_wire::verify::Pins;

use crate::agent::{Shared, lock, now};
use crate::build::Builder;
use crate::connect;
use crate::control::ControlError;
use crate::deliver::Delivery;
use crate::identity::{self, Identity, IdentityError, RegistrationFile};
use crate::layout::Layout;

/// What came of an enrolment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enrolled {
    /// The host has keys and a token, and no certificate yet.
    First,
    /// The host has a certificate, and keys and a token for the next one.
    Again,
    /// The token was used here already.
    Before,
}

/// Takes a token: for the keys that wait for a certificate, or for new ones where those have one.
///
/// # Errors
/// When the directory is another edge's, or nothing can be written.
pub fn enrol(
    layout: &Layout,
    edge: EdgeId,
    control: &str,
    token: &SecretBytes,
) -> Result<Enrolled, IdentityError> {
    let identity = Identity::create(layout, edge, control)?;
    if identity::is_used(layout, token) {
        return Ok(Enrolled::Before);
    }
    if RegistrationFile::new(layout).read(&identity.state_key).0.is_none() {
        identity::keep_token(layout, token)?;
        return Ok(Enrolled::First);
    }
    // The same token once more: what it is good for has its keys already.
    let is_same = |kept: SecretBytes| kept.expose().trim_ascii() == token.expose().trim_ascii();
    if identity::kept_token(layout).is_some_and(is_same) {
        return Ok(Enrolled::Again);
    }
    Identity::prepare_next(layout, control)?;
    identity::keep_token(layout, token)?;
    Ok(Enrolled::Again)
}

/// Carries out an enrolment that replaces an identity: registers with the next keys, and goes over to them. True where it
/// did; then everything is to be fetched anew, since it is sealed for the new keys.
pub(crate) fn take_over(shared: &Shared, delivery: &mut Delivery) -> bool {
    let Some(token) = identity::kept_token(&shared.layout) else { return false };
    if RegistrationFile::new(&shared.layout).read(&delivery.identity.state_key).0.is_none() {
        return false;
    }
    match replace(shared, delivery, token) {
        Ok(()) => {
            tracing::info!("registered anew, with other keys");
            true
        }
        Err(error) => {
            tracing::warn!(%error, "the new enrolment");
            shared.status().alarm(now(), "enrolment", &error.to_string());
            false
        }
    }
}

/// Why an enrolment did not replace an identity.
#[derive(Debug, thiserror::Error)]
enum ReplaceError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Disk(#[from] crate::disk::DiskError),
}

fn replace(shared: &Shared, delivery: &mut Delivery, token: SecretBytes) -> Result<(), ReplaceError> {
    let layout = &shared.layout;
    // Without next keys it broke off after they were taken: the token is asked again for what it gave.
    let next = Identity::next(layout)?.unwrap_or(Identity::load(layout)?);
    let registration = match connect::register_with(shared, &next, token) {
        Err(error) if error.is_token_refused() => {
            Identity::drop_next(layout)?;
            identity::forget_token(layout);
            return Err(error.into());
        }
        other => other?,
    };
    fail::fail_point!("edge.enrol.registered");
    RegistrationFile::new(layout).write(&next.state_key, &registration)?;
    fail::fail_point!("edge.enrol.written");
    let identity = Arc::new(Identity::take_next(layout)?);
    // Who enrols anew believes what the token's authority says, as the first time.
    let pins = Pins { keys: registration.answer.keys.clone(), ..delivery.pins.clone() };
    delivery.pins_file.write(&identity.state_key, &pins)?;
    fail::fail_point!("edge.enrol.taken");
    identity::forget_token(layout);
    delivery.pins = pins;
    delivery.builder = Builder::new(Arc::clone(&identity), delivery.builder.budget());
    delivery.identity = identity;
    *lock(&shared.control) = None;
    shared.status().alarms.retain(|alarm| !matches!(alarm.code.as_str(), "enrolment" | "renewal"));
    Ok(())
}
