//! Warnings about zone cuts: records that no resolver asks this zone for, because an NS RRset at a name above them gives
//! that name away (RFC 1034, 4.2.1). Advice, never a refusal: a delegation that is being prepared looks the same. It is
//! judged at the end state, over the owners that the change touches, the owners above them, and a few RRsets below each
//! name that gets NS records: the zone is never read.

use super::rrsets::Touched;
use super::state::DomainView;
use crate::dns::{OwnerKey, OwnerName, RrSetBody, RrType};

/// The one type that belongs to this side of a zone cut (RFC 4035, 2.4).
const DS: RrType = RrType::from_code(43);
/// Warnings of one command that are told one by one.
pub const WARNINGS_MAX_COUNT: usize = 50;

/// Every warning of a change.
pub(super) fn warnings(view: &DomainView, touched: &Touched) -> Vec<String> {
    let zone = EndState { view, touched };
    let mut warnings = Vec::new();
    let mut more = 0_usize;
    for ((key, rrtype), (owner, body, _)) in touched {
        let before = view.get(key, *rrtype).map(|stored| &stored.body);
        let Some(body) = body.as_ref().filter(|body| Some(*body) != before) else { continue };
        let Some(warning) = zone.warning(key, *rrtype, owner, body) else { continue };
        if warnings.len() < WARNINGS_MAX_COUNT {
            warnings.push(warning);
        } else {
            more += 1;
        }
    }
    if more > 0 {
        warnings.push(format!("{more} more RRsets are hidden by zone cuts"));
    }
    warnings
}

/// The zone as the change leaves it, as far as it was read.
struct EndState<'a> {
    view: &'a DomainView,
    touched: &'a Touched,
}

impl EndState<'_> {
    fn get(&self, key: &OwnerKey, rrtype: RrType) -> Option<&RrSetBody> {
        match self.touched.get(&(key.clone(), rrtype)) {
            Some((_, body, _)) => body.as_ref(),
            None => self.view.get(key, rrtype).map(|stored| &stored.body),
        }
    }

    /// The highest name above this one, or this one itself, that is given away; and to which servers.
    fn cut(&self, owner: &OwnerName) -> Option<(OwnerName, &RrSetBody)> {
        let above = std::iter::once(owner.clone()).chain(owner.ancestors()).filter(|name| !name.is_apex());
        above
            .filter_map(|name| Some((self.get(&name.key(), RrType::NS)?, name)))
            .last()
            .map(|(ns, name)| (name, ns))
    }

    fn warning(&self, key: &OwnerKey, rrtype: RrType, owner: &OwnerName, body: &RrSetBody) -> Option<String> {
        let (cut, ns) = self.cut(owner)?;
        if rrtype == RrType::NS && cut == *owner {
            return self.hides(key, owner, body);
        }
        let is_at_cut = cut == *owner;
        if is_glue(&self.view.state.name, owner, rrtype, ns) || (is_at_cut && rrtype == DS) {
            return None;
        }
        let place = if is_at_cut { "stands at" } else { "lies below" };
        Some(format!(
            "{owner} {rrtype} {place} the zone cut at {cut}: the NS records of {cut} give the name to other servers, so \
             resolvers do not ask this zone for it"
        ))
    }

    /// What a zone cut hides of what is there and stays: the first of it is named.
    fn hides(&self, key: &OwnerKey, owner: &OwnerName, ns: &RrSetBody) -> Option<String> {
        let at = self.view.rrsets.get(key).into_iter().flat_map(|types| types.keys());
        let at =
            at.filter(|rrtype| !matches!(**rrtype, RrType::NS | DS)).map(|rrtype| (key.clone(), *rrtype));
        let below = self.view.below.get(key).into_iter().flatten().cloned();
        // What the change touches has a warning of its own, or is deleted.
        let stays = |one: &(OwnerKey, RrType)| !self.touched.contains_key(one);
        let hidden = at.chain(below).filter(stays).find_map(|(key, rrtype)| {
            let name = OwnerName::from_key(key.as_str()).ok()?;
            (!is_glue(&self.view.state.name, &name, rrtype, ns)).then_some((name, rrtype))
        });
        hidden.map(|(name, rrtype)| {
            format!(
                "{owner} NS makes a zone cut at {owner} that hides what is there, such as {name} {rrtype}: resolvers \
                 do not ask this zone for it any more"
            )
        })
    }
}

/// Whether these are addresses of a server that the cut gives the name to: they are handed out with the referral.
fn is_glue(zone: &crate::dns::DomainName, owner: &OwnerName, rrtype: RrType, ns: &RrSetBody) -> bool {
    let server = format!("{}.", owner.absolute(zone));
    matches!(rrtype, RrType::A | RrType::AAAA) && ns.records.contains(&server)
}
