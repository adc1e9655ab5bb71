//! TSIG (RFC 8945) as whoever asks for a transfer needs it: the question is signed, and of the answer every message is
//! covered by the MAC of one that bears it. What is not covered is not believed.

use super::SourceError;
use crate::secret::Secret;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headwater_events::migration::{TsigAlgorithm, TsigReference};
use std::path::Path;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// How far clocks may be apart.
const FUDGE_SECONDS: u16 = 300;
/// Messages in a row without a MAC of their own, at most (RFC 8945, 5.3.1).
const UNSIGNED_MAX_MESSAGES: usize = 99;
/// Octets of the head of a message.
const HEAD_BYTES: usize = 12;
const TYPE_TSIG: u16 = 250;
const CLASS_ANY: u16 = 255;
const CLASS_IN: u16 = 1;

/// A key.
pub(super) struct Key {
    name: Vec<u8>,
    algorithm: Vec<u8>,
    key: hmac::Key,
}

/// Why a message is not believed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum TsigError {
    #[error("an answer that is not signed")]
    Unsigned,
    #[error("an answer that is signed with another key")]
    OtherKey,
    #[error("an answer whose signature does not hold")]
    Bad,
    #[error("an answer that was signed at another time: compare the clocks")]
    Time,
    #[error("the key is not taken there (TSIG error {0})")]
    Refused(u16),
    #[error("a malformed answer")]
    Malformed,
}

fn wire(name: &str) -> Option<Vec<u8>> {
    let name = domain::base::Name::<Vec<u8>>::from_str(name).ok()?;
    Some(name.as_slice().to_ascii_lowercase())
}

impl Key {
    pub(super) fn open(reference: &TsigReference) -> Result<Self, SourceError> {
        let unusable = |why: String| SourceError::Unusable(why);
        let file = &reference.secret_file;
        let text = Secret::read(Path::new(file)).map_err(|error| unusable(format!("{error:#}")))?;
        let secret = STANDARD.decode(text.expose().trim());
        let secret = secret.map_err(|_| unusable(format!("{file} holds no secret in base64")))?;
        Self::new(reference.name.as_str(), reference.algorithm, &Zeroizing::new(secret))
            .ok_or_else(|| unusable(format!("{} cannot be the name of a key", reference.name)))
    }

    fn new(name: &str, algorithm: TsigAlgorithm, secret: &[u8]) -> Option<Self> {
        let digest = match algorithm {
            TsigAlgorithm::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            TsigAlgorithm::Sha256 => hmac::HMAC_SHA256,
            TsigAlgorithm::Sha384 => hmac::HMAC_SHA384,
            TsigAlgorithm::Sha512 => hmac::HMAC_SHA512,
        };
        Some(Self {
            name: wire(name)?,
            algorithm: wire(algorithm.name())?,
            key: hmac::Key::new(digest, secret),
        })
    }

    /// Signs a question; gives what its answer is verified against.
    pub(super) fn sign(&self, message: &mut Vec<u8>) -> Option<Verifier<'_>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
        let mut context = hmac::Context::with_key(&self.key);
        context.update(message);
        context.update(&self.variables(now, FUDGE_SECONDS, 0, &[]));
        let mac = context.sign().as_ref().to_vec();
        let id = message.get(..2)?.to_vec();
        let mut data = self.algorithm.clone();
        data.extend(time(now));
        data.extend(FUDGE_SECONDS.to_be_bytes());
        data.extend(u16::try_from(mac.len()).ok()?.to_be_bytes());
        data.extend(&mac);
        data.extend(id);
        data.extend([0, 0, 0, 0]);
        message.extend(&self.name);
        message.extend(TYPE_TSIG.to_be_bytes());
        message.extend(CLASS_ANY.to_be_bytes());
        message.extend([0; 4]);
        message.extend(u16::try_from(data.len()).ok()?.to_be_bytes());
        message.extend(data);
        let additional = message.get_mut(10..HEAD_BYTES)?;
        additional.copy_from_slice(&1_u16.to_be_bytes());
        Some(Verifier { key: self, prior: mac, pending: Vec::new(), unsigned: 0, first: true })
    }

    fn variables(&self, at: u64, fudge: u16, error: u16, other: &[u8]) -> Vec<u8> {
        let mut out = self.name.clone();
        out.extend(CLASS_ANY.to_be_bytes());
        out.extend([0; 4]);
        out.extend(&self.algorithm);
        out.extend(time(at));
        out.extend(fudge.to_be_bytes());
        out.extend(error.to_be_bytes());
        out.extend(u16::try_from(other.len()).unwrap_or(0).to_be_bytes());
        out.extend(other);
        out
    }
}

fn time(at: u64) -> [u8; 6] {
    let [_, _, rest @ ..] = at.to_be_bytes();
    rest
}

/// Goes through the messages of one answer.
pub(super) struct Verifier<'k> {
    key: &'k Key,
    prior: Vec<u8>,
    /// Messages since the last MAC.
    pending: Vec<u8>,
    unsigned: usize,
    first: bool,
}

/// A TSIG record, and where it begins.
struct Found {
    at: usize,
    name: Vec<u8>,
    algorithm: Vec<u8>,
    signed: u64,
    fudge: u16,
    mac: Vec<u8>,
    original: [u8; 2],
    error: u16,
    other: Vec<u8>,
}

impl Verifier<'_> {
    /// Takes a message in. What it says may be believed once [`Self::finish`] has nothing against it.
    pub(super) fn take(&mut self, message: &[u8]) -> Result<(), TsigError> {
        let Some(found) = find(message)? else {
            self.unsigned += 1;
            if self.first || self.unsigned > UNSIGNED_MAX_MESSAGES {
                return Err(TsigError::Unsigned);
            }
            self.pending.extend_from_slice(message);
            return Ok(());
        };
        if found.name != self.key.name || found.algorithm != self.key.algorithm {
            return Err(TsigError::OtherKey);
        }
        if found.mac.is_empty() && found.error != 0 {
            return Err(TsigError::Refused(found.error));
        }
        let mut plain = message.get(..found.at).ok_or(TsigError::Malformed)?.to_vec();
        let additional = u16::from_be_bytes([byte(&plain, 10)?, byte(&plain, 11)?]);
        let without = additional.checked_sub(1).ok_or(TsigError::Malformed)?;
        plain.get_mut(..2).ok_or(TsigError::Malformed)?.copy_from_slice(&found.original);
        plain.get_mut(10..HEAD_BYTES).ok_or(TsigError::Malformed)?.copy_from_slice(&without.to_be_bytes());
        let mut signed = u16::try_from(self.prior.len()).unwrap_or(0).to_be_bytes().to_vec();
        signed.extend(&self.prior);
        signed.append(&mut self.pending);
        signed.extend(plain);
        if self.first {
            signed.extend(self.key.variables(found.signed, found.fudge, found.error, &found.other));
        } else {
            signed.extend(time(found.signed));
            signed.extend(found.fudge.to_be_bytes());
        }
        hmac::verify(&self.key.key, &signed, &found.mac).map_err(|_| TsigError::Bad)?;
        if found.error != 0 {
            return Err(TsigError::Refused(found.error));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        if now.abs_diff(found.signed) > u64::from(found.fudge) {
            return Err(TsigError::Time);
        }
        (self.prior, self.first, self.unsigned) = (found.mac, false, 0);
        Ok(())
    }

    /// Whether the last message bore a MAC, as it must.
    pub(super) fn finish(&self) -> Result<(), TsigError> {
        if self.first || self.unsigned > 0 { Err(TsigError::Unsigned) } else { Ok(()) }
    }
}

fn byte(message: &[u8], at: usize) -> Result<u8, TsigError> {
    message.get(at).copied().ok_or(TsigError::Malformed)
}

fn number(message: &[u8], at: usize) -> Result<u16, TsigError> {
    Ok(u16::from_be_bytes([byte(message, at)?, byte(message, at + 1)?]))
}

/// Behind the name that begins here; the name itself where it is not compressed.
fn name(message: &[u8], mut at: usize) -> Result<(usize, Option<Vec<u8>>), TsigError> {
    let begin = at;
    loop {
        match byte(message, at)? {
            0 => {
                let name = message.get(begin..=at).ok_or(TsigError::Malformed)?;
                return Ok((at + 1, Some(name.to_ascii_lowercase())));
            }
            length @ 1..=63 => at += usize::from(length) + 1,
            192..=255 => return Ok((at + 2, None)),
            _ => return Err(TsigError::Malformed),
        }
    }
}

/// The TSIG record of a message: the last one of it, or none.
fn find(message: &[u8]) -> Result<Option<Found>, TsigError> {
    let questions = number(message, 4)?;
    let records = usize::from(number(message, 6)?)
        + usize::from(number(message, 8)?)
        + usize::from(number(message, 10)?);
    let mut at = HEAD_BYTES;
    for _ in 0..questions {
        at = name(message, at)?.0 + 4;
    }
    for index in 1..=records {
        let (head, owner) = name(message, at)?;
        let length = usize::from(number(message, head + 8)?);
        let data = head + 10;
        if number(message, head)? != TYPE_TSIG {
            at = data + length;
            continue;
        }
        if index < records || number(message, head + 2)? == CLASS_IN {
            return Err(TsigError::Malformed);
        }
        let (rest, algorithm) = name(message, data)?;
        let mut signed = [0; 8];
        let read = message.get(rest..rest + 6).ok_or(TsigError::Malformed)?;
        signed.get_mut(2..).ok_or(TsigError::Malformed)?.copy_from_slice(read);
        let size = usize::from(number(message, rest + 8)?);
        let mac = message.get(rest + 10..rest + 10 + size).ok_or(TsigError::Malformed)?.to_vec();
        let end = rest + 10 + size;
        let more = usize::from(number(message, end + 4)?);
        let other = message.get(end + 6..end + 6 + more).ok_or(TsigError::Malformed)?.to_vec();
        return Ok(Some(Found {
            at,
            name: owner.ok_or(TsigError::OtherKey)?,
            algorithm: algorithm.ok_or(TsigError::OtherKey)?,
            signed: u64::from_be_bytes(signed),
            fudge: number(message, rest + 6)?,
            mac,
            original: [byte(message, end)?, byte(message, end + 1)?],
            error: number(message, end + 2)?,
            other,
        }));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(secret: &[u8]) -> Key {
        Key::new("k.example", TsigAlgorithm::Sha256, secret).unwrap()
    }

    /// A message with a question and nothing else.
    fn message() -> Vec<u8> {
        let mut message = vec![0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend(wire("example.com").unwrap());
        message.extend([0, 252, 0, 1]);
        message
    }

    /// What a server answers: the same message, signed after the question.
    fn answer(key: &Key, prior: &[u8]) -> Vec<u8> {
        let mut answer = message();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut signed = u16::try_from(prior.len()).unwrap().to_be_bytes().to_vec();
        signed.extend(prior);
        signed.extend(&answer);
        signed.extend(key.variables(now, 300, 0, &[]));
        let mac = hmac::sign(&key.key, &signed);
        let signature = mac.as_ref();
        answer[11] = 1;
        answer.extend(&key.name);
        answer.extend([0, 250, 0, 255, 0, 0, 0, 0]);
        answer.extend(u16::try_from(key.algorithm.len() + 16 + signature.len()).unwrap().to_be_bytes());
        answer.extend(&key.algorithm);
        answer.extend(time(now));
        answer.extend(300_u16.to_be_bytes());
        answer.extend(u16::try_from(signature.len()).unwrap().to_be_bytes());
        answer.extend(signature);
        answer.extend([0, 7, 0, 0, 0, 0]);
        answer
    }

    #[test]
    fn only_what_was_signed_with_the_key_after_the_question_is_believed() {
        let ours = key(b"secret");
        let mut question = message();
        let mut verifier = ours.sign(&mut question).unwrap();
        assert_eq!(find(&question).unwrap().unwrap().mac, verifier.prior);
        let good = answer(&ours, &verifier.prior);
        let forged = answer(&key(b"another"), &verifier.prior);
        assert_eq!(verifier.take(&forged), Err(TsigError::Bad));
        let of_another_question = answer(&ours, b"another question");
        assert_eq!(verifier.take(&of_another_question), Err(TsigError::Bad));
        assert_eq!(verifier.take(&message()), Err(TsigError::Unsigned));
        let mut changed = good.clone();
        changed[13] ^= 1;
        assert_eq!(verifier.take(&changed), Err(TsigError::Bad));
        assert_eq!(verifier.finish(), Err(TsigError::Unsigned));
        verifier.take(&good).unwrap();
        verifier.finish().unwrap();
        // One that bears no MAC is covered by the next that does, so it must not be the last.
        verifier.take(&message()).unwrap();
        assert_eq!(verifier.finish(), Err(TsigError::Unsigned));
        for cut in 0..good.len() {
            assert!(ours.sign(&mut message()).unwrap().take(&good[..cut]).is_err(), "{cut}");
        }
    }
}
