//! Pure: a domain as `desired` holds it → the artifact that every edge gets. The same site gives the same bytes; what
//! readers would refuse is refused here.

use headwater_edge_wire::artifact::{
    ARTIFACT_SCHEMA, Artifact, ArtifactBudget, Backup, Cache, Certificate, Health, Hostname, Origin, Profile,
    Scheme, Security,
};
use headwater_edge_wire::canonical::CanonicalError;
use headwater_edge_wire::check::Fault;
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::ids::{self as wire, AgentRange, OutOfRange};
use headwater_events::dns::{DomainName, OwnerName};
use headwater_events::domain::{self, CachePolicy, CertificateBody, HostnameBody, covers};
use headwater_events::ids::{CertificateId, DomainId, Revision};
use serde::{Deserialize, Serialize};

/// Faults of one artifact that are told.
const TOLD_MAX_FAULTS: usize = 10;

/// What is published of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The domain.
    pub id: DomainId,
    /// Its name.
    pub name: DomainName,
    /// The newest revision that changes what edges serve.
    pub revision: Revision,
    /// What is proxied, in any order.
    pub hostnames: Vec<(OwnerName, HostnameBody)>,
    /// How answers are kept.
    pub cache: CachePolicy,
    /// Part of every key of the cache.
    pub epoch: u64,
    /// What its names are proven with.
    pub certificate: Option<CertificateBody>,
}

/// An artifact's canonical bytes and their checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Their checksum: the artifact's name.
    pub checksum: Checksum,
    /// The certificates whose keys go with it.
    pub keys: Vec<KeyName>,
}

/// Which version of which certificate a key is for, as `edge.domains` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KeyName {
    /// The certificate.
    pub id: CertificateId,
    /// Its version.
    pub version: u32,
}

/// Why a site has no artifact.
#[derive(Debug, thiserror::Error)]
pub enum RenderFault {
    /// It is larger than anybody reads, or JSON cannot hold it.
    #[error("the artifact cannot be published: {0}")]
    Bytes(#[from] CanonicalError),
    /// A number is beyond what every reader keeps.
    #[error(transparent)]
    Number(#[from] OutOfRange),
    /// It breaks the rules that every edge holds it to.
    #[error("edges would refuse the artifact: {}", told(.0))]
    Rules(Vec<Fault>),
}

fn told(faults: &[Fault]) -> String {
    let told = faults.iter().take(TOLD_MAX_FAULTS).map(|fault| format!("{} {}", fault.pointer, fault.detail));
    told.collect::<Vec<_>>().join("; ")
}

/// Renders a site.
///
/// # Errors
/// Why edges would not take it.
pub fn render(site: &Site, budget: ArtifactBudget) -> Result<Rendered, RenderFault> {
    let mut hostnames: Vec<Hostname> =
        site.hostnames.iter().map(|(owner, body)| hostname(owner.absolute(&site.name), body)).collect();
    hostnames.sort_by(|a, b| a.name.cmp(&b.name));
    let shown = site.certificate.as_ref().map(|body| (body, names_shown(body, &hostnames)));
    let shown = shown.filter(|(_, names)| !names.is_empty());
    let keys = shown.iter().map(|(body, _)| KeyName { id: body.id, version: body.version }).collect();
    let artifact = Artifact {
        schema: ARTIFACT_SCHEMA,
        agent: AgentRange::CURRENT,
        domain: site.name.as_str().to_owned(),
        id: wire::DomainId::from_uuid(site.id.as_uuid()),
        revision: wire::Revision::try_from(site.revision.get())?,
        hostnames,
        cache: cache(&site.cache, site.epoch),
        security: Security { profile: Profile::Standard },
        certificates: shown.into_iter().map(|(body, names)| certificate(body, names)).collect(),
    };
    let (bytes, checksum) = artifact.checked().map_err(RenderFault::Rules)?.bytes(budget)?;
    Ok(Rendered { bytes, checksum, keys })
}

/// The names of a certificate that some proxied name needs. The others are nothing to an edge: they may be another
/// domain's, or nobody's.
fn names_shown(body: &CertificateBody, hostnames: &[Hostname]) -> Vec<String> {
    let is_needed = |name: &&String| hostnames.iter().any(|hostname| covers(name, &hostname.name));
    body.names.iter().filter(is_needed).cloned().collect()
}

fn certificate(body: &CertificateBody, names: Vec<String>) -> Certificate {
    Certificate {
        id: wire::CertificateId::from_uuid(body.id.as_uuid()),
        version: wire::Version::from(body.version),
        names,
        chain_pem: body.chain.clone(),
    }
}

fn hostname(name: String, body: &HostnameBody) -> Hostname {
    let backup = body.backup.as_ref().map(|backup| Backup {
        origin: origin(&backup.origin),
        failure_threshold: backup.failure_threshold,
        recovery_threshold: backup.recovery_threshold,
        hold_down_seconds: backup.hold_down_seconds,
        failback_delay_seconds: backup.failback_delay_seconds,
    });
    let health = body
        .health
        .as_ref()
        .map(|health| Health { path: health.path.clone(), interval_seconds: health.interval_seconds });
    Hostname { name, origin: origin(&body.origin), backup, health }
}

fn origin(origin: &domain::Origin) -> Origin {
    Origin {
        scheme: match origin.scheme {
            domain::Scheme::Http => Scheme::Http,
            domain::Scheme::Https => Scheme::Https,
        },
        host: origin.host.clone(),
        port: origin.port,
        host_header: origin.host_header.clone(),
        sni: origin.sni.clone(),
        verify_tls: origin.verify_tls,
        connect_timeout_ms: origin.connect_timeout_ms,
        response_timeout_ms: origin.response_timeout_ms,
        retries: origin.retries,
        websocket: origin.websocket,
    }
}

fn cache(policy: &CachePolicy, epoch: u64) -> Cache {
    Cache {
        enabled: policy.enabled,
        edge_ttl_seconds: policy.edge_ttl_seconds,
        browser_ttl_seconds: policy.browser_ttl_seconds,
        respect_origin_headers: policy.respect_origin_headers,
        maximum_object_bytes: policy.maximum_object_bytes,
        stale_if_error_seconds: policy.stale_if_error_seconds,
        stale_while_revalidate_seconds: policy.stale_while_revalidate_seconds,
        epoch,
    }
}
