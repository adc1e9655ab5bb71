//! Where webhooks may lead: what the special-purpose registries do not set apart, and what an administrator's list opens.
//!
//! What must hold: an address is judged when it is connected to, and it is the judged one that is connected to: names are
//! resolved here and nowhere else, so that a name that means something else a moment later leads nowhere. What a resolver
//! might take for an address in an odd spelling is read as that address before it is judged.

use headwater_events::domain::destination::{Destinations, Network, Special};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use crate::config::Config;

/// Addresses of one name that are looked at, at most.
const ADDRESSES_MAX_COUNT: usize = 64;

/// What the administrators say of receivers.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    allow: Vec<Network>,
    allow_http: bool,
    /// The platform's own addresses, and nothing opened.
    destinations: Destinations,
}

impl Rules {
    /// Those of the configuration.
    pub fn of(config: &Config) -> Self {
        let platform = config.sites.destinations.platform.clone();
        Self {
            allow: config.webhooks.allow_networks.clone(),
            allow_http: config.webhooks.allow_http,
            destinations: Destinations { platform, ..Destinations::default() },
        }
    }

    /// Whether an address may be connected to.
    ///
    /// # Errors
    /// What sets it apart.
    pub fn permit(&self, address: IpAddr) -> Result<(), Special> {
        match self.destinations.permit(address) {
            Err(Special::Platform) => Err(Special::Platform),
            _ if self.allow.iter().any(|network| network.holds(address)) => Ok(()),
            judged => judged,
        }
    }

    /// Reads the URL of a receiver, in its one spelling, and judges it as far as that goes without a resolver.
    ///
    /// # Errors
    /// A stable code, and the fault for people.
    pub fn read(&self, text: &str) -> Result<Url, (&'static str, String)> {
        let url = Url::parse(text).map_err(|error| ("invalid_url", format!("this is no URL: {error}")))?;
        match url.scheme() {
            "https" => {}
            "http" if self.allow_http => {}
            "http" => {
                let detail = "events are sent by https: http only where the administrators allow it";
                return Err(("http_not_allowed", detail.to_owned()));
            }
            _ => return Err(("invalid_url", "the URL of a receiver begins with https://".to_owned())),
        }
        if !url.username().is_empty() || url.password().is_some() {
            let detail = "a URL is shown to whoever may read the webhook: check the signature instead";
            return Err(("credentials_in_url", detail.to_owned()));
        }
        if url.fragment().is_some() {
            return Err(("invalid_url", "a fragment is not sent: leave it out".to_owned()));
        }
        if let Some(address) = literal(&url) {
            let refused = |special| ("forbidden_destination", Refused { address, special }.to_string());
            self.permit(address).map_err(refused)?;
        } else {
            let host = url.host_str().unwrap_or_default().trim_end_matches('.');
            let local = host.rsplit('.').next().unwrap_or_default().eq_ignore_ascii_case("localhost");
            let loopback = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1_u16])];
            if local && loopback.iter().all(|address| self.permit(*address).is_err()) {
                let detail = "localhost is the platform's own loopback: nothing is sent there";
                return Err(("forbidden_destination", detail.to_owned()));
            }
        }
        Ok(url)
    }
}

/// The address that stands in a URL, if it is none to be resolved.
fn literal(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_matches(['[', ']']).parse().ok()
}

/// Nothing is sent to this address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {}: nothing is sent there", .special.meaning())]
pub struct Refused {
    /// Which.
    pub address: IpAddr,
    /// What sets it apart.
    pub special: Special,
}

/// What a look-up comes to.
pub type Looked = Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send>>;

/// What knows the addresses of names.
pub trait Lookup: Send + Sync {
    /// The addresses of a name, as they are now.
    fn look(&self, name: String) -> Looked;
}

/// The system's resolver.
#[derive(Debug, Clone, Copy)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn look(&self, name: String) -> Looked {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).take(ADDRESSES_MAX_COUNT).collect())
        })
    }
}

/// What the client asks for addresses: it gets those that were judged, or none.
pub(super) struct Guarded {
    pub(super) rules: Rules,
    pub(super) lookup: Arc<dyn Lookup>,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let (rules, looked) = (self.rules.clone(), self.lookup.look(name.as_str().to_owned()));
        Box::pin(async move {
            let addresses = looked.await?;
            // One that is not to be connected to spoils them all: its name is not to be trusted.
            for address in &addresses {
                let refused = |special| Refused { address: *address, special };
                rules.permit(*address).map_err(refused)?;
            }
            let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses.collect::<Vec<_>>().into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], allow_http: bool) -> Rules {
        let platform = vec!["203.0.112.0/24".parse().unwrap()];
        Rules {
            allow: allow.iter().map(|network| network.parse().unwrap()).collect(),
            allow_http,
            destinations: Destinations { platform, ..Destinations::default() },
        }
    }

    #[test]
    fn a_url_is_read_and_judged() {
        let strict = rules(&[], false);
        for (url, expected) in [
            ("https://hooks.example.net/a?b=c", "https://hooks.example.net/a?b=c"),
            ("https://HOOKS.example.net", "https://hooks.example.net/"),
            ("https://8.8.8.8:8443/", "https://8.8.8.8:8443/"),
            ("https://[2606:4700::1]/", "https://[2606:4700::1]/"),
            ("http://hooks.example.net/", "http_not_allowed"),
            ("ftp://hooks.example.net/", "invalid_url"),
            ("hooks.example.net", "invalid_url"),
            ("https://", "invalid_url"),
            ("https://a:b@hooks.example.net/", "credentials_in_url"),
            ("https://a@hooks.example.net/", "credentials_in_url"),
            ("https://hooks.example.net/#x", "invalid_url"),
            ("https://127.0.0.1/", "forbidden_destination"),
            ("https://0x7f.1/", "forbidden_destination"),
            ("https://2130706433/", "forbidden_destination"),
            ("https://0177.0.0.1/", "forbidden_destination"),
            ("https://127.1/", "forbidden_destination"),
            ("https://10.0.0.1/", "forbidden_destination"),
            ("https://169.254.169.254/latest/meta-data/", "forbidden_destination"),
            ("https://[::1]/", "forbidden_destination"),
            ("https://[::ffff:127.0.0.1]/", "forbidden_destination"),
            ("https://[64:ff9b::7f00:1]/", "forbidden_destination"),
            ("https://[fd00::1]/", "forbidden_destination"),
            ("https://203.0.112.7/", "forbidden_destination"),
            ("https://localhost/", "forbidden_destination"),
            ("https://a.LOCALHOST./", "forbidden_destination"),
        ] {
            let read = strict.read(url).map(String::from).unwrap_or_else(|(code, _)| code.to_owned());
            assert_eq!(read, expected, "{url}");
        }
    }

    #[test]
    fn an_administrators_list_opens_what_it_names_and_nothing_else() {
        let rules = rules(&["127.0.0.2/32", "10.1.0.0/16", "203.0.112.0/24"], true);
        for (address, is_permitted) in [
            ("127.0.0.2", true),
            ("127.0.0.1", false),
            ("10.1.255.255", true),
            ("10.2.0.1", false),
            ("192.168.0.1", false),
            ("8.8.8.8", true),
            // The platform's own addresses are opened by no list.
            ("203.0.112.7", false),
        ] {
            assert_eq!(rules.permit(address.parse().unwrap()).is_ok(), is_permitted, "{address}");
        }
        assert!(rules.read("http://hooks.example.net/").is_ok());
        assert!(rules.read("http://localhost/").is_err());
    }
}
