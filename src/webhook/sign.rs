//! Secrets of webhooks and what is signed with them (Standard Webhooks 1.0.0). A secret is shown once, as `whsec_` and
//! base64, and kept sealed for its webhook and version alone.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headwater_edge_wire::secret::SecretBytes;
use headwater_events::ids::{EventId, TenantId, WebhookId};
use headwater_events::webhook::SealedWebhookSecret;
use sqlx::postgres::PgPool;
use zeroize::Zeroizing;

use crate::secret::Secret;
use crate::vault::{Owner, Place, Vault, VaultError};

/// The kind of sealed secret.
pub const SECRET_KIND: &str = "webhook_secret";
/// What a shown secret begins with.
const PREFIX: &str = "whsec_";
/// Octets of a secret.
const SECRET_BYTES: usize = 32;

/// A new secret, as it is shown, and sealed for a version of a webhook of this owner.
///
/// # Errors
/// When it cannot be sealed.
pub async fn draw(
    pool: &PgPool,
    vault: &Vault,
    owner: Option<TenantId>,
    webhook: WebhookId,
    version: u32,
) -> Result<(Secret, SealedWebhookSecret), VaultError> {
    let key = Zeroizing::new(rand::random::<[u8; SECRET_BYTES]>());
    let shown = Secret::new(format!("{PREFIX}{}", STANDARD.encode(key.as_ref())));
    let id = webhook.to_string();
    let owner = owner.map_or(Owner::Platform, Owner::Tenant);
    let mut connection = pool.acquire().await?;
    let sealed = vault.seal_for(&mut connection, owner, place(&id, version), key.as_ref()).await?;
    Ok((shown, SealedWebhookSecret::new(sealed)))
}

/// Opens the secret of a version.
///
/// # Errors
/// When it was sealed under a key that is not there, or was changed.
pub async fn open(
    pool: &PgPool,
    vault: &Vault,
    webhook: WebhookId,
    version: u32,
    sealed: &[u8],
) -> Result<SecretBytes, VaultError> {
    let id = webhook.to_string();
    vault.open_sealed(pool, place(&id, version), sealed).await
}

fn place(id: &str, version: u32) -> Place<'_> {
    Place { kind: SECRET_KIND, id, version: i32::try_from(version).unwrap_or(i32::MAX) }
}

/// What `webhook-id` says: the same whenever the same event is sent to the same webhook, so that a receiver can tell a
/// repetition. It holds no full stop, which separates what is signed.
pub fn message_id(event: EventId, webhook: WebhookId) -> String {
    format!("msg_{}_{}", event.as_uuid().simple(), webhook.as_uuid().simple())
}

/// What `webhook-signature` says: one signature by each secret that counts.
pub fn signature(secrets: &[SecretBytes], id: &str, timestamp: i64, body: &[u8]) -> String {
    let each = secrets.iter().map(|secret| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.expose());
        let mut context = hmac::Context::with_key(&key);
        context.update(format!("{id}.{timestamp}.").as_bytes());
        context.update(body);
        format!("v1,{}", STANDARD.encode(context.sign()))
    });
    each.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    #[test]
    fn the_example_of_the_specification_is_signed_as_it_says() {
        let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = br#"{"test": 2432232314}"#;
        let shown = signature(&[SecretBytes::new(key)], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(shown, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
