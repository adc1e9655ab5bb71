//! Whether servers answer alike for a zone: the old ones, that it comes from, and the new ones, that it goes to. What
//! must hold: a question that one of them did not answer is a difference, for nothing was shown of it; and a zone is
//! called alike only when every RRset and every way of being absent was asked of all.

mod judge;
mod questions;
pub mod sql;
mod walk;

use crate::deploy::dns::{self, Answer, QueryError};
use crate::rebuild::{Difference, Kind};
use domain::base::Name;
use futures_util::{StreamExt, stream};
use headwater_events::dns::DomainName;
use serde_json::json;
use std::net::SocketAddr;
use std::str::FromStr;

use judge::{Said, said};
pub use questions::Names;
use questions::{Question, probe, questions};
pub use walk::import;

/// How often a question is asked before it counts as unanswered.
const TRIES_MAX_TIMES: u32 = 3;
/// Questions that are under way at once for one zone.
const QUESTIONS_AT_ONCE_COUNT: usize = 16;

/// A server that is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// For people.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
}

/// Questions in a row that differ before the rest of a zone is not asked: then the zone as a whole does, and of a server
/// that is silent each one costs seconds.
const DIFFERENT_MAX_COUNT: u64 = 200;

/// What a comparison of one zone came to.
#[derive(Debug, Default)]
pub struct Compared {
    /// Questions that were asked of every server.
    pub questions: u64,
    /// Where a new server said something else than the old one, or one of them nothing.
    pub differences: Vec<Difference>,
}

/// Asks the old server and the new ones everything that the zone has, and what it has not. Where the old server is a
/// cache, whose TTLs run down, `with_ttl` is false.
pub async fn zone(
    old: &Listener,
    new: &[Listener],
    zone: &DomainName,
    names: &Names,
    with_ttl: bool,
) -> Compared {
    let probe = probe(names, rand::random());
    let Ok(apex) = Name::<Vec<u8>>::from_str(zone.as_str()) else { return Compared::default() };
    let asked = questions(zone, names, &probe).map(|question| {
        let apex = &apex;
        async move {
            let expected = ask(old, &question).await.map(|answer| said(&answer, apex, with_ttl));
            let mut found = Vec::new();
            for listener in new {
                let live = ask(listener, &question).await.map(|answer| said(&answer, apex, with_ttl));
                found.extend(difference(zone, &question, listener, &live, &expected));
            }
            found
        }
    });
    let mut compared = Compared::default();
    // In their order, so that two comparisons of the same zone tell the same.
    let mut answers = stream::iter(asked).buffered(QUESTIONS_AT_ONCE_COUNT);
    let mut in_a_row = 0;
    while let Some(found) = answers.next().await {
        compared.questions += 1;
        in_a_row = if found.is_empty() { 0 } else { in_a_row + 1 };
        compared.differences.extend(found);
        if in_a_row >= DIFFERENT_MAX_COUNT {
            compared.differences.push(unasked(zone));
            break;
        }
    }
    compared
}

/// That the rest of a zone was not asked about.
fn unasked(zone: &DomainName) -> Difference {
    let why = format!("{DIFFERENT_MAX_COUNT} answers in a row differed: the rest of the zone was not asked");
    Difference {
        kind: Kind::Answered,
        table: "answer".to_owned(),
        key: json!([zone.as_str()]),
        live: json!(why),
        expected: json!("otherwise"),
    }
}

async fn ask(listener: &Listener, question: &Question) -> Result<Answer, QueryError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match dns::ask(listener.address, &question.name, question.rrtype).await {
            Err(QueryError::Timeout | QueryError::Io(_)) if tries < TRIES_MAX_TIMES => {}
            asked => return asked,
        }
    }
}

fn difference(
    zone: &DomainName,
    question: &Question,
    listener: &Listener,
    live: &Result<Said, QueryError>,
    expected: &Result<Said, QueryError>,
) -> Option<Difference> {
    if let (Ok(live), Ok(expected)) = (live, expected)
        && live == expected
    {
        return None;
    }
    let told = |said: &Result<Said, QueryError>| match said {
        Ok(said) => said.told(),
        Err(error) => error.to_string(),
    };
    let key = json!([zone.as_str(), question.name, question.rrtype.to_string(), listener.name]);
    let (live, expected) = (json!(told(live)), json!(told(expected)));
    Some(Difference { kind: Kind::Answered, table: "answer".to_owned(), key, live, expected })
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_events::dns::{OwnerName, RrType};

    #[tokio::test]
    async fn a_zone_that_differs_all_along_is_not_asked_to_its_end() {
        let example = DomainName::parse("example.com").unwrap();
        let names: Names = (0..400)
            .map(|n| {
                let owner = OwnerName::parse(&format!("n{n}"), &example).unwrap();
                (owner.key().as_str().to_owned(), (owner, [RrType::A].into()))
            })
            .collect();
        // A port that nobody has, so that each question ends at once.
        let nobody = Listener { name: "nobody".to_owned(), address: ([127, 0, 0, 1], 1).into() };
        let compared = zone(&nobody, std::slice::from_ref(&nobody), &example, &names, true).await;
        assert_eq!(compared.questions, DIFFERENT_MAX_COUNT);
        let told = compared.differences.last().unwrap().to_string();
        assert!(told.contains("the rest of the zone was not asked"), "{told}");
    }
}
