//! What a running dnsdist is told so that it becomes what its configuration says, without a question lost. Pure. What
//! must hold: a server goes only after those that take its place were seen up, so that there is always one to ask, and
//! after what it was asked is answered.

use super::render;
use super::{Backend, DnsdistSettings};

/// Prints the servers that it has, a line each: name, address, order, whether it is up.
pub(super) const SERVERS: &str = "local t = {} for _, s in pairs(getServers()) do \
     local _, _, a = s:getNameWithAddr():find('%(([^()]+)%)$') \
     t[#t + 1] = s:getName() .. ' ' .. (a or s:getNameWithAddr()) .. ' ' .. s.order .. ' ' .. tostring(s:isUp()) end \
     return 'servers\\n' .. table.concat(t, '\\n')";
/// Prints by what its fixed part is known.
pub(super) const FIXED: &str = "return 'fixed ' .. tostring(headwater_fixed)";

/// The order of a server that gets no more questions.
const RETIRED: usize = 1_000_000;

/// A server as dnsdist has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) order: usize,
    pub(super) is_up: bool,
}

/// Reads what [`SERVERS`] prints; none when it is something else.
pub(super) fn running(printed: &str) -> Option<Vec<Running>> {
    let mut lines = printed.lines();
    lines.next().filter(|first| *first == "servers")?;
    let server = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, address, order, is_up] = words.as_slice() else { return None };
        Some(Running {
            name: (*name).to_owned(),
            address: (*address).to_owned(),
            order: order.parse().ok()?,
            is_up: *is_up == "true",
        })
    };
    lines.filter(|line| !line.is_empty()).map(server).collect()
}

/// What is to be added and what is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// To be told first, in this order.
    pub(super) add: Vec<Wanted>,
    /// To go once what is wanted is up.
    pub(super) remove: Vec<Running>,
}

/// A server at its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) backend: Backend,
    pub(super) order: usize,
}

impl Wanted {
    fn is(&self, running: &Running) -> bool {
        self.backend.name == running.name
            && self.backend.address.to_string() == running.address
            && self.order == running.order
    }

    /// What dnsdist is told.
    pub(super) fn command(&self) -> String {
        format!("{} return 'done'", render::server(&self.backend, self.order))
    }
}

impl Running {
    /// Does something with the server, called `s`, if it is there.
    fn with(&self, what: &str) -> String {
        let (name, address) = (render::quoted(&self.name), render::quoted(&format!("({})", self.address)));
        format!(
            "for _, s in pairs(getServers()) do if s:getName() == {name} and (s.order == {} or s.order == {RETIRED}) and \
             s:getNameWithAddr():find({address}, 1, true) then {what} end end",
            self.order
        )
    }

    /// What dnsdist is told so that it gets no more questions. Its order says so, should whoever tells it die here.
    pub(super) fn retirement(&self) -> String {
        let retire = format!("s:rmPool('') s:rmPool({}) s.order = {RETIRED}", render::quoted(&self.name));
        format!("{} return 'done'", self.with(&retire))
    }

    /// Prints how many questions it still has to answer.
    pub(super) fn outstanding(&self) -> String {
        format!("local n = 0 {} return 'outstanding ' .. n", self.with("n = n + s:getOutstanding()"))
    }

    /// What dnsdist is told for it to go.
    pub(super) fn removal(&self) -> String {
        format!("{} return 'done'", self.with("rmServer(s) break"))
    }
}

/// Reads what [`Running::outstanding`] prints.
pub(super) fn outstanding(printed: &str) -> Option<u64> {
    printed.strip_prefix("outstanding ")?.parse().ok()
}

/// The servers as they should be.
pub(super) fn wanted(settings: &DnsdistSettings, backends: &[Backend]) -> Vec<Wanted> {
    let ordered = render::ordered(backends, settings.prefer.as_deref());
    ordered.into_iter().enumerate().map(|(order, backend)| Wanted { backend, order }).collect()
}

/// What differs.
pub(super) fn plan(wanted: &[Wanted], running: &[Running]) -> Plan {
    let add = wanted.iter().filter(|one| !running.iter().any(|there| one.is(there))).cloned();
    let remove = running.iter().filter(|there| !wanted.iter().any(|one| one.is(there))).cloned();
    Plan { add: add.collect(), remove: remove.collect() }
}

/// Whether what is not wanted any more may go: something that is wanted is up, or nothing of what goes is.
pub(super) fn may_remove(wanted: &[Wanted], running: &[Running]) -> bool {
    let is_wanted = |there: &Running| wanted.iter().any(|one| one.is(there));
    running.iter().any(|there| there.is_up && is_wanted(there))
        || !running.iter().any(|there| there.is_up && !is_wanted(there))
}
