//! Where an edge may connect to: exactly what the IANA special-purpose registries (RFC 6890, RFC 8190) do not set
//! apart, and no multicast. Private ranges are opened by an administrator's list, loopback only by a setting that
//! names itself unsafe; the platform's own addresses are never a destination.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Networks of one list of the configuration, at most.
pub const NETWORKS_MAX_COUNT: usize = 1_000;

/// A network: an address and the length of its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    address: IpAddr,
    length: u8,
}

/// Not a network in CIDR notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a network is written as 10.0.0.0/8 or fd00::/8, without bits behind its prefix")]
pub struct NotANetwork;

impl Network {
    /// Whether the address lies in it.
    pub fn holds(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            _ => false,
        }
    }

    /// Whether every address of the other lies in it.
    pub fn includes(&self, other: &Self) -> bool {
        self.length <= other.length && self.holds(other.address)
    }

    fn is_exact(&self) -> bool {
        match self.address {
            IpAddr::V4(own) => own.to_bits().checked_shl(u32::from(self.length)).unwrap_or(0) == 0,
            IpAddr::V6(own) => own.to_bits().checked_shl(u32::from(self.length)).unwrap_or(0) == 0,
        }
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotANetwork)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => most,
            Some(length) => length.parse().ok().filter(|n| *n <= most).ok_or(NotANetwork)?,
        };
        let network = Self { address, length };
        if network.is_exact() { Ok(network) } else { Err(NotANetwork) }
    }
}

impl TryFrom<String> for Network {
    type Error = NotANetwork;

    fn try_from(text: String) -> Result<Self, NotANetwork> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// What sets an address apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Special {
    /// "This host" or "this network".
    Unspecified,
    /// This machine.
    Loopback,
    /// One link only; metadata services among them.
    LinkLocal,
    /// Where a cloud answers its machines on an address that looks like any other.
    Metadata,
    /// A group, not a host.
    Multicast,
    /// Private use.
    Private,
    /// Shared between a carrier and its customers.
    CarrierNat,
    /// Documentation only.
    Documentation,
    /// Benchmarks only.
    Benchmarking,
    /// Kept by the IETF, or a protocol's own.
    Reserved,
    /// Reaches another address through a translator or a tunnel.
    Translated,
    /// An address of the platform itself.
    Platform,
}

impl Special {
    /// For people.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Unspecified => "an unspecified address",
            Self::Loopback => "a loopback address",
            Self::LinkLocal => "a link-local address (metadata services have such)",
            Self::Metadata => "the address of a metadata service",
            Self::Multicast => "a multicast address",
            Self::Private => "a private address, and no allow list of an administrator names it",
            Self::CarrierNat => "a shared address of carriers (RFC 6598)",
            Self::Documentation => "an address for documentation",
            Self::Benchmarking => "an address for benchmarks",
            Self::Reserved => "a reserved address",
            Self::Translated => "an address that stands for another one (mapped, NAT64, 6to4, Teredo)",
            Self::Platform => "an address of the platform itself",
        }
    }
}

/// What the administrators say of destinations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Destinations {
    /// Private networks that origins may be in.
    pub allow_private: Vec<Network>,
    /// Networks of the platform itself.
    pub platform: Vec<Network>,
    /// Unsafe: origins on the edge's own loopback.
    pub unsafe_allow_loopback: bool,
}

impl Destinations {
    /// Whether an edge may connect to this address.
    ///
    /// # Errors
    /// What sets the address apart.
    pub fn permit(&self, address: IpAddr) -> Result<(), Special> {
        let names = |list: &[Network], address| list.iter().any(|network| network.holds(address));
        if names(&self.platform, address) || plain(address).is_some_and(|inner| names(&self.platform, inner))
        {
            return Err(Special::Platform);
        }
        match special(address) {
            None => Ok(()),
            Some(Special::Private) if names(&self.allow_private, address) => Ok(()),
            Some(Special::Loopback) if self.unsafe_allow_loopback => Ok(()),
            Some(special) => Err(special),
        }
    }
}

/// The IPv4 address that an IPv6 address stands for through a NAT64 of the well-known prefix (RFC 6052).
fn plain(address: IpAddr) -> Option<IpAddr> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => match address.segments() {
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(IpAddr::V4(joined(high, low))),
            _ => None,
        },
    }
}

fn joined(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

/// What sets an address apart, if anything does.
pub fn special(address: IpAddr) -> Option<Special> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

/// The IPv4 registry, with multicast (RFC 5771). What it calls globally reachable is a destination.
fn special_v4(address: Ipv4Addr) -> Option<Special> {
    match address.octets() {
        [0, ..] => Some(Special::Unspecified),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Some(Special::Private),
        [100, 64..=127, ..] => Some(Special::CarrierNat),
        [127, ..] => Some(Special::Loopback),
        [169, 254, ..] => Some(Special::LinkLocal),
        // Azure's, the only one outside of the special-purpose ranges.
        [168, 63, 129, 16] => Some(Special::Metadata),
        // Anycast of PCP (RFC 7723) and TURN (RFC 8155).
        [192, 0, 0, 9 | 10] => None,
        // Protocol assignments, and the relays of 6to4 (RFC 7526).
        [192, 0, 0, _] | [192, 88, 99, _] => Some(Special::Reserved),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Some(Special::Documentation),
        [198, 18..=19, ..] => Some(Special::Benchmarking),
        [224..=239, ..] => Some(Special::Multicast),
        [240..=255, ..] => Some(Special::Reserved),
        _ => None,
    }
}

/// The IPv6 registry, with multicast and what the addressing architecture took back (RFC 4291, RFC 3879).
fn special_v6(address: Ipv6Addr) -> Option<Special> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some(Special::Unspecified),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(Special::Loopback),
        // IPv4-mapped, and IPv4-compatible, which nothing may use any more.
        [0, 0, 0, 0, 0, 0xffff | 0, ..] => Some(Special::Translated),
        // NAT64: reachable as far as what it stands for is.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => special_v4(joined(high, low)).map(|_| Special::Translated),
        [0x64, 0xff9b, 1, ..] => Some(Special::Translated),
        // Discard (RFC 6666) and the dummy prefix (RFC 9780).
        [0x100, 0, 0, 0 | 1, ..] => Some(Special::Reserved),
        [0x2001, 0, ..] => Some(Special::Translated),
        // Anycast of PCP, TURN and DNS-SD (RFC 7723, RFC 8155, RFC 9665).
        [0x2001, 1, 0, 0, 0, 0, 0, 1..=3] => None,
        [0x2001, 2, 0, ..] => Some(Special::Benchmarking),
        // AMT (RFC 7450), AS112 (RFC 7535), ORCHIDv2 (RFC 7343), drone identifiers (RFC 9374).
        [0x2001, 3, ..] | [0x2001, 4, 0x112, ..] | [0x2001, 0x20..=0x3f, ..] => None,
        [0x2001, 0..=0x1ff, ..] => Some(Special::Reserved),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Some(Special::Documentation),
        [0x2002, ..] => Some(Special::Translated),
        // Segment identifiers of SRv6 (RFC 9602).
        [0x5f00, ..] => Some(Special::Reserved),
        [0xfc00..=0xfdff, ..] => Some(Special::Private),
        [0xfe80..=0xfebf, ..] => Some(Special::LinkLocal),
        [0xfec0..=0xfeff, ..] => Some(Special::Reserved),
        [0xff00..=0xffff, ..] => Some(Special::Multicast),
        _ => None,
    }
}
