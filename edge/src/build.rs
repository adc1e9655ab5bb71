//! From a descriptor and its artifact to the line that a cell serves: verified before it is parsed, checked against the
//! domain's own rules, compiled with its keys. What fails is refused alone.

use std::sync::Arc;

use headwater_edge_wire::artifact::{Artifact, ArtifactBudget};
use headwater_edge_wire::compiled::{CompiledDomain, OpenedKeys, compile};
use headwater_edge_wire::ids::{AgentVersion, CertificateId, DomainId, Version};
use headwater_edge_wire::manifest::LiveDescriptor;
use headwater_edge_wire::protocol::Refused;
use headwater_edge_wire::seal::{ContentKey, SealedContentKey};
use headwater_edge_wire::sign::KeyRing;
use headwater_edge_wire::verify::ArtifactRefusal;

use crate::identity::Identity;
use crate::index::host_hash;
use crate::journal::Put;
use crate::plan::Refusal;

/// Compiles for one edge. It remembers the content key that it opened last.
pub struct Builder {
    identity: Arc<Identity>,
    opened: Option<(SealedContentKey, ContentKey)>,
    budget: ArtifactBudget,
}

/// A domain, ready to be served.
pub struct Built {
    /// The domain.
    pub id: DomainId,
    /// What is recorded of it.
    pub put: Put,
    /// What cells read.
    pub compiled: CompiledDomain,
    /// The keys of its certificates.
    pub keys: OpenedKeys,
}

impl Built {
    /// The names of its keys.
    pub fn key_names(&self) -> Vec<(CertificateId, Version)> {
        self.keys.names().into_iter().collect()
    }
}

/// Whether the signature of an artifact is checked.
#[derive(Clone, Copy)]
pub enum Proof<'a> {
    /// It comes from outside: its signature must be by a key of this ring.
    Signed(&'a KeyRing),
    /// It was verified when it was taken, and the record that names its checksum is authenticated: a key that left the
    /// ring since does not take away what is served.
    Recorded,
}

impl Builder {
    /// A builder for this edge.
    pub fn new(identity: Arc<Identity>, budget: ArtifactBudget) -> Self {
        Self { identity, opened: None, budget }
    }

    /// How large an artifact may be.
    pub fn budget(&self) -> ArtifactBudget {
        self.budget
    }

    /// Builds a domain from its artifact.
    ///
    /// # Errors
    /// Why it cannot be served.
    pub fn build(
        &mut self,
        descriptor: LiveDescriptor,
        content_key: Option<&SealedContentKey>,
        bytes: &[u8],
        proof: Proof<'_>,
    ) -> Result<Built, Refusal> {
        fail::fail_point!("edge.verify.before");
        let artifact = match proof {
            Proof::Signed(ring) => descriptor
                .verify(bytes, ring, AgentVersion::CURRENT, self.budget)
                .map_err(|refusal| refused(&refusal))?,
            Proof::Recorded => Artifact::parse(bytes, self.budget)
                .map_err(ArtifactRefusal::Form)
                .and_then(|artifact| artifact.checked().map_err(ArtifactRefusal::Faults))
                .map_err(|refusal| refused(&refusal))?,
        };
        fail::fail_point!("edge.verify.after");
        fail::fail_point!("edge.compile.before");
        planted(&descriptor.domain)?;
        let keys = self.open_keys(&descriptor, content_key)?;
        let compiled =
            compile(&artifact, &keys).map_err(|error| Refusal::new(error.code(), error.to_string()))?;
        let hosts = artifact.artifact().hostnames.iter().map(|hostname| host_hash(&hostname.name)).collect();
        let content_key = content_key.filter(|_| !descriptor.keys.is_empty()).cloned();
        fail::fail_point!("edge.compile.after");
        Ok(Built { id: descriptor.id, put: Put { descriptor, content_key, hosts }, compiled, keys })
    }

    fn open_keys(
        &mut self,
        descriptor: &LiveDescriptor,
        sealed: Option<&SealedContentKey>,
    ) -> Result<OpenedKeys, Refusal> {
        let mut keys = OpenedKeys::new();
        if descriptor.keys.is_empty() {
            return Ok(keys);
        }
        let cannot = |what: &dyn std::fmt::Display| Refusal::new("key_sealed", what.to_string());
        let sealed = sealed.ok_or_else(|| cannot(&"there is no content key"))?;
        if self.opened.as_ref().is_none_or(|(have, _)| have != sealed) {
            let opened = self.identity.open(sealed);
            self.opened = Some((sealed.clone(), opened.map_err(|error| cannot(&error))?));
        }
        if let Some((_, content_key)) = &self.opened {
            for key in &descriptor.keys {
                let pem = content_key.open_key(key).map_err(|error| cannot(&error))?;
                keys.insert(key.id, key.version, pem);
            }
        }
        Ok(keys)
    }
}

/// Refuses the domain that a test names: a fault that no artifact of this control plane has.
#[cfg(feature = "failpoints")]
fn planted(domain: &str) -> Result<(), Refusal> {
    match std::env::var("HEADWATER_EDGE_REFUSES") {
        Ok(name) if name == domain => Err(Refusal::new("does_not_compile", "a fault that a test planted")),
        _ => Ok(()),
    }
}

#[cfg(not(feature = "failpoints"))]
fn planted(_: &str) -> Result<(), Refusal> {
    Ok(())
}

fn refused(refusal: &ArtifactRefusal) -> Refusal {
    let detail = match refusal {
        ArtifactRefusal::Faults(faults) => Refused::detail_of(faults),
        other => other.to_string(),
    };
    Refusal::new(refusal.code(), detail)
}
