//! How often somebody may try to log in: buckets that every process shares, by a digest of who tries. They are refilled
//! evenly, by the clock of the database.

use sqlx::postgres::PgPool;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use super::sql;

/// Tries of one address, whoever it says it is, for each that one address has for one user.
const ADDRESS_SHARE: u32 = 6;
/// The time in which a bucket is filled.
const WINDOW_SECONDS: f64 = 60.0;
/// What digests of those who try are derived under.
const LABEL: &str = "headwater 2026-12 login rate v1";

/// Takes one try of an address for somebody; when there is none, says in how long there is.
///
/// # Errors
/// When the database does not answer.
pub async fn take(
    pool: &PgPool,
    address: &str,
    who: &str,
    per_minute: u32,
) -> Result<Option<Duration>, sqlx::Error> {
    let network = network(address);
    let buckets = [
        (digest(&[&network]), per_minute.saturating_mul(ADDRESS_SHARE)),
        (digest(&[&network, who]), per_minute),
    ];
    for (key, quota) in buckets {
        let quota = f64::from(quota);
        let query = sqlx::query_scalar(sql::TAKE_LOGIN).bind(key.as_slice()).bind(quota);
        let left: f64 = query.fetch_one(pool).await?;
        if left < 0.0 {
            let wait = (-left * WINDOW_SECONDS / quota).ceil().max(1.0);
            return Ok(Some(Duration::try_from_secs_f64(wait).unwrap_or(Duration::from_secs(60))));
        }
    }
    Ok(None)
}

/// Whoever has one IPv6 address has all of its network.
fn network(address: &str) -> String {
    match address.parse() {
        Ok(IpAddr::V6(address)) => {
            let bits = address.to_bits() >> 64 << 64;
            Ipv6Addr::from_bits(bits).to_string()
        }
        _ => address.to_owned(),
    }
}

fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(LABEL);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_caller() {
        assert_eq!(network("2001:db8:0:1:2::3"), network("2001:db8:0:1::"));
        assert_ne!(network("2001:db8:0:1::"), network("2001:db8:0:2::"));
        assert_eq!(network("192.0.2.1"), "192.0.2.1");
        assert_ne!(digest(&["a", "b"]), digest(&["ab"]));
    }
}
