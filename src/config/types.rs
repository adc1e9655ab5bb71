//! Values of the configuration that are more than a number: host names, the URL of an API, where a secret is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use domain::base::Name;

use crate::secret::Secret;

/// An absolute host name, lower case, without the trailing dot.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    /// Names that are known to be right; one that is not is left out.
    pub(super) fn defaults(names: &[&str]) -> Vec<Self> {
        names.iter().filter_map(|name| name.parse().ok()).collect()
    }

    /// The name without the trailing dot.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let host = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let is_letter =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
        let is_label = |label: &str| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(is_letter)
        };
        // The crate checks the lengths of labels and name.
        let fits = Name::<Vec<u8>>::from_str(&host).is_ok();
        if fits && host.contains('.') && host.split('.').all(is_label) {
            Ok(Self(host))
        } else {
            Err(format!("{text:?} is not a host name of at least two labels, such as ns1.example.net"))
        }
    }
}

/// The root of an API: scheme, host and port, without a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiUrl(String);

impl ApiUrl {
    /// The URL without a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ApiUrl {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let fault = || format!("{text:?} is not a URL such as https://headwater.example.net");
        let uri: http::Uri = text.parse().map_err(|_| fault())?;
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        let has_path = !matches!(uri.path(), "" | "/") || uri.query().is_some();
        // Credentials in a URL end up in logs; the token has a file.
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if !is_http || uri.host().is_none_or(str::is_empty) || has_path || has_user {
            return Err(fault());
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

/// A name or an address under which a TLS listener is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerName(String);

impl ListenerName {
    /// The name, lower case, or the address.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ListenerName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let name = text.to_ascii_lowercase();
        match rustls::pki_types::ServerName::try_from(name.clone()) {
            Ok(_) => Ok(Self(name)),
            Err(_) => Err(format!("{text:?} is neither a host name nor an address")),
        }
    }
}

/// Where a secret is: in the configuration itself or in a file of its own.
#[derive(Clone)]
pub enum SecretSource {
    /// The value.
    Value(Secret),
    /// The file that holds it.
    File(PathBuf),
}

impl SecretSource {
    /// The secret; a file is read anew, so that a rotated secret is found.
    pub fn read(&self) -> Result<Secret> {
        match self {
            Self::Value(secret) => Ok(secret.clone()),
            Self::File(path) => Secret::read(path),
        }
    }
}
