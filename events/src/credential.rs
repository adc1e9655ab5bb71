//! What a caller has shown to be let in, besides who it is: how its token is bounded, and when its rights were read.
//!
//! What must hold: a token that is made with a token is at most as strong in every respect.

use crate::ids::RightsNumber;
use crate::manager::{Managing, View};
use crate::people::TokenLimits;
use crate::reject::Fault;
use crate::time::Timestamp;
use uuid::Uuid;

/// What was shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Credential {
    /// The session, if it was one.
    pub session: Option<Uuid>,
    /// When the token stops working by itself.
    pub expires_at: Option<Timestamp>,
    /// When and from where the token works.
    pub limits: TokenLimits,
    /// Whose tool the token belongs to.
    pub managing: Managing,
    /// The number that the caller's rights had when they were read. What is decided with these rights is appended while
    /// they still have it. None of the control plane itself.
    pub rights: Option<RightsNumber>,
}

/// What a token is to be bounded to that is made with another.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// When it stops working by itself.
    pub expires_at: Option<Timestamp>,
    /// When and from where it works.
    pub limits: &'a TokenLimits,
    /// Whose tool it belongs to.
    pub managing: &'a Managing,
}

impl Credential {
    /// What of a token goes beyond the one that it is made with, but for scopes.
    pub fn exceeded_by(&self, asked: &Asked<'_>) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut fault = |pointer: String, detail: String| {
            faults.push(Fault::at(pointer, "exceeds_caller", detail));
        };
        if let Some(end) = self.expires_at
            && asked.expires_at.is_none_or(|asked| asked > end)
        {
            fault("/expires_at".into(), format!("the token that makes it works until {end}: not longer"));
        }
        if let Some(days) = self.limits.max_unused_days
            && asked.limits.max_unused_days.is_none_or(|asked| asked > days)
        {
            let detail = format!("the token that makes it works for {days} days without use: not longer");
            fault("/max_unused_days".into(), detail);
        }
        let own = &self.limits.networks;
        if !own.is_empty() {
            if asked.limits.networks.is_empty() {
                let detail =
                    "the token that makes it works from some networks alone: say from which this one does";
                fault("/networks".into(), detail.into());
            }
            for (index, network) in asked.limits.networks.iter().enumerate() {
                if !own.iter().any(|own| own.includes(network)) {
                    let detail = "the token that makes it does not work from there".into();
                    fault(format!("/networks/{index}"), detail);
                }
            }
        }
        if let Some(manager) = &self.managing.manager
            && asked.managing.manager.as_ref() != Some(manager)
        {
            fault("/manager".into(), format!("the token that makes it is of {manager}: so is this one"));
        }
        if self.managing.view == View::Own && asked.managing.view != View::Own {
            fault(
                "/view".into(),
                "the token that makes it is shown its own RRsets alone: so is this one".into(),
            );
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(days: Option<u32>, networks: &[&str]) -> TokenLimits {
        let networks = networks.iter().map(|text| text.parse().unwrap()).collect();
        TokenLimits { max_unused_days: days, networks }
    }

    fn managing(manager: Option<&str>, view: View) -> Managing {
        Managing { manager: manager.map(|name| name.parse().unwrap()), view }
    }

    #[test]
    fn a_token_makes_none_that_is_stronger() {
        let at = |millis| Some(Timestamp::from_millis(millis));
        let own = Credential {
            expires_at: at(1_000),
            limits: limits(Some(30), &["10.0.0.0/8", "2001:db8::/32"]),
            managing: managing(Some("octodns"), View::Own),
            ..Credential::default()
        };
        let mine = managing(Some("octodns"), View::Own);
        let as_strong = limits(Some(30), &["10.1.0.0/16", "10.0.0.0/8", "2001:db8::1"]);
        let told = |own: &Credential, expires_at, limits: &TokenLimits, managing: &Managing| {
            let asked = Asked { expires_at, limits, managing };
            own.exceeded_by(&asked).into_iter().map(|fault| fault.pointer).collect::<Vec<_>>()
        };
        assert!(told(&own, at(1_000), &as_strong, &mine).is_empty());
        assert!(told(&own, at(999), &limits(Some(1), &["10.0.0.1"]), &mine).is_empty());
        let free = limits(None, &[]);
        let all = ["/expires_at", "/max_unused_days", "/networks", "/manager", "/view"];
        assert_eq!(told(&own, None, &free, &Managing::default()), all);
        let beyond = limits(Some(31), &["10.0.0.0/7", "10.0.0.1", "::/0", "192.0.2.1"]);
        let all =
            ["/expires_at", "/max_unused_days", "/networks/0", "/networks/2", "/networks/3", "/manager"];
        assert_eq!(told(&own, at(1_001), &beyond, &managing(Some("other"), View::Own)), all);
        assert!(told(&Credential::default(), None, &free, &mine).is_empty());
    }
}
