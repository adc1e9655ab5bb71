//! Secret types have no way to be shown, copied or serialized: an attempt would not compile, and neither would this.

use headwater_edge_wire::compiled::OpenedKeys;
use headwater_edge_wire::protocol::RegisterRequest;
use headwater_edge_wire::seal::{ContentKey, SealingPrivateKey};
use headwater_edge_wire::secret::{SecretArray, SecretBytes};
use headwater_edge_wire::sign::SigningKey;

/// Compiles only when the type has none of the traits: each one it had would make `which` ambiguous.
macro_rules! has_none_of {
    ($type:ty: $($trait:path),+ $(,)?) => {
        const _: fn() = || {
            trait Ambiguous<Marker> {
                fn which() {}
            }
            impl<T: ?Sized> Ambiguous<()> for T {}
            $({
                #[allow(dead_code)]
                struct Has;
                impl<T: ?Sized + $trait> Ambiguous<Has> for T {}
            })+
            let _ = <$type as Ambiguous<_>>::which;
        };
    };
}

macro_rules! is_secret {
    ($($type:ty),+ $(,)?) => {$(
        has_none_of!($type: std::fmt::Debug, std::fmt::Display, Clone, PartialEq, AsRef<[u8]>, AsRef<str>,
            serde::Serialize, serde::de::DeserializeOwned, std::hash::Hash);
    )+};
}

is_secret!(SecretBytes, SecretArray, SigningKey, SealingPrivateKey, ContentKey, OpenedKeys, RegisterRequest);

/// The macro itself sees a trait that is there: an inherent probe that only types without `Debug` reach.
#[test]
fn the_probe_tells_the_difference() {
    struct Probe<T>(std::marker::PhantomData<T>);
    trait Without {
        fn shows(&self) -> bool {
            false
        }
    }
    impl<T> Without for Probe<T> {}
    impl<T: std::fmt::Debug> Probe<T> {
        fn shows(&self) -> bool {
            true
        }
    }
    assert!(Probe::<String>(std::marker::PhantomData).shows());
    assert!(!Probe::<SecretBytes>(std::marker::PhantomData).shows());
}

#[test]
fn no_error_tells_a_secret() {
    use super::given::*;
    use headwater_edge_wire::ids::Version;
    let canary = "canary-hw-3f9a";
    let bad = SigningKey::from_pkcs8(&secret(canary)).err().unwrap();
    let body = format!("{{\"token\":\"{canary}\",\"edge\":\"{canary}\"}}");
    let parse = RegisterRequest::parse(body.as_bytes()).err().unwrap();
    let mut keys = OpenedKeys::new();
    keys.insert(certificate_id(9), Version::from(1), secret(canary));
    let compile = headwater_edge_wire::compiled::compile(&artifact().checked().unwrap(), &keys).unwrap_err();
    assert_eq!(compile.code(), "key_unreadable");
    for text in [format!("{bad} {bad:?}"), format!("{parse} {parse:?}"), format!("{compile} {compile:?}")] {
        assert!(!text.contains(canary), "{text}");
    }
}
