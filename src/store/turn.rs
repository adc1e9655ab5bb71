//! Whose turn it is: which of the waiting commands make the next batch. What must
//! hold: nobody waits for ever; a small command waits for at most one big one that
//! came to its turn before; and callers take turns, so that one with very many
//! commands delays another's single one by no more than a batch. The order of
//! commands that wait at the same time is not promised to anybody.

use std::collections::HashMap;
use std::hash::Hash;

/// Commands of one batch, at most.
pub const BATCH_MAX_COMMANDS: usize = 256;

/// What a command is to the others of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// It goes with others.
    Small,
    /// It has more events than a batch may have, so it goes without others.
    Big,
    /// Its views are not kept over a batch, so it goes without others, in no time.
    Alone,
}

/// Gives each command its turn as it comes: a caller's first after what has been
/// served, each further one a turn later than the one before (start-time fair
/// queueing). Whoever has few commands is never behind the many of another.
#[derive(Debug)]
pub(super) struct Turns<C> {
    served: u64,
    last: HashMap<C, u64>,
    /// What is left of the small commands that waited behind the last big one: they
    /// go before the next big one, those that came later do not, so that the big
    /// ones have their turn as well.
    owed: usize,
}

impl<C: Copy + Eq + Hash> Turns<C> {
    pub(super) fn new() -> Self {
        Self { served: 0, last: HashMap::new(), owed: 0 }
    }

    /// The turn of a caller's next command.
    pub(super) fn enter(&mut self, caller: C) -> u64 {
        let last = self.last.entry(caller).or_default();
        *last = self.served.max(*last) + 1;
        *last
    }

    /// The indices of the next batch, rising, of what waits: each command's turn and
    /// size, the oldest first.
    pub(super) fn select(&mut self, waiting: &[(u64, Size)], most: usize) -> Vec<usize> {
        let chosen = self.choose(waiting, most);
        for (turn, _) in chosen.iter().filter_map(|index| waiting.get(*index)) {
            self.served = self.served.max(*turn);
        }
        // A caller whose last command was served begins anew: only those that wait are kept.
        let served = self.served;
        self.last.retain(|_, last| *last > served);
        chosen
    }

    fn choose(&mut self, waiting: &[(u64, Size)], most: usize) -> Vec<usize> {
        let mut turns: Vec<(u64, usize, Size)> =
            waiting.iter().enumerate().map(|(index, (turn, size))| (*turn, index, *size)).collect();
        turns.sort_unstable_by_key(|(turn, index, _)| (*turn, *index));
        let small = |(_, _, size): &&(u64, usize, Size)| *size != Size::Big;
        let small_waiting = turns.iter().filter(small).count();
        self.owed = small_waiting.min(self.owed);
        let front = match self.owed {
            0 => 0,
            _ => turns.iter().position(|(_, _, size)| *size != Size::Big).unwrap_or(0),
        };
        let mut chosen: Vec<usize> = match turns.get(front) {
            None => return Vec::new(),
            Some((_, index, Size::Big)) => {
                self.owed = small_waiting;
                return vec![*index];
            }
            Some((_, index, Size::Alone)) => vec![*index],
            Some((_, _, Size::Small)) => {
                // Past the big ones, which have their turn next, up to one that goes alone.
                let rest = turns.iter().skip(front).filter(small);
                let together = rest.take_while(|(_, _, size)| *size == Size::Small);
                together.map(|(_, index, _)| *index).take(most).collect()
            }
        };
        self.owed = self.owed.saturating_sub(chosen.len());
        chosen.sort_unstable();
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::Size::{Alone, Big, Small};
    use super::*;
    use proptest::prelude::*;

    /// The order in which commands that wait at once are taken.
    fn rounds_of(waiting: &[(u8, Size)], most: usize) -> Vec<Vec<usize>> {
        let mut turns = Turns::new();
        let entered: Vec<(u64, Size)> =
            waiting.iter().map(|(caller, size)| (turns.enter(*caller), *size)).collect();
        let mut left: Vec<usize> = (0..waiting.len()).collect();
        let mut all = Vec::new();
        while !left.is_empty() {
            let now: Vec<(u64, Size)> = left.iter().map(|index| entered[*index]).collect();
            let chosen = turns.select(&now, most);
            assert!(!chosen.is_empty(), "nobody has the turn");
            all.push(chosen.iter().map(|at| left[*at]).collect());
            left = (0..left.len()).filter(|at| !chosen.contains(at)).map(|at| left[at]).collect();
        }
        all
    }

    /// The same, where all are one caller's.
    fn rounds(sizes: &[Size]) -> Vec<Vec<usize>> {
        let waiting: Vec<(u8, Size)> = sizes.iter().map(|size| (0, *size)).collect();
        rounds_of(&waiting, BATCH_MAX_COMMANDS)
    }

    #[test]
    fn small_ones_wait_for_one_big_one() {
        assert_eq!(rounds(&[Big, Big, Big, Small, Small]), [vec![0], vec![3, 4], vec![1], vec![2]]);
        assert_eq!(rounds(&[Small, Big, Small]), [vec![0, 2], vec![1]]);
        assert_eq!(rounds(&[Big, Big, Alone, Small, Alone]), [vec![0], vec![2], vec![3], vec![4], vec![1]]);
        let many = [vec![Big, Big], vec![Small; BATCH_MAX_COMMANDS + 1]].concat();
        let taken: Vec<usize> = rounds(&many).iter().map(Vec::len).collect();
        assert_eq!(taken, [1, BATCH_MAX_COMMANDS, 1, 1]);
    }

    #[test]
    fn big_ones_have_their_turn_though_small_ones_keep_coming() {
        let mut turns = Turns::new();
        let mut waiting: Vec<_> = [Big, Big, Small].map(|size| (turns.enter(0), size)).into();
        let mut bigs = 0;
        for _ in 0..4 {
            for index in turns.select(&waiting.clone(), BATCH_MAX_COMMANDS).into_iter().rev() {
                bigs += usize::from(waiting.remove(index).1 == Big);
            }
            waiting.push((turns.enter(0), Small));
        }
        assert_eq!(bigs, 2);
    }

    #[test]
    fn without_big_ones_it_is_the_order_of_the_queue() {
        assert_eq!(rounds(&[Small, Small, Alone, Small]), [vec![0, 1], vec![2], vec![3]]);
        assert!(rounds(&[]).is_empty());
    }

    #[test]
    fn callers_take_turns() {
        for (what, waiting, expected) in [
            (
                "one that came last goes with the first of the others",
                vec![(1, Small), (1, Small), (1, Small), (1, Small), (2, Small)],
                vec![vec![0, 4], vec![1, 2], vec![3]],
            ),
            (
                "three share what two can have",
                vec![(1, Small), (1, Small), (2, Small), (2, Small), (3, Small)],
                vec![vec![0, 2], vec![1, 4], vec![3]],
            ),
            (
                "what goes alone does not wait for another's queue",
                vec![(1, Small), (1, Small), (1, Small), (2, Alone), (2, Small)],
                vec![vec![0], vec![3], vec![1, 4], vec![2]],
            ),
            (
                "nor does a big one, and it holds up nobody twice",
                vec![(1, Small), (1, Small), (1, Small), (2, Big), (2, Big), (3, Small)],
                vec![vec![0, 5], vec![3], vec![1, 2], vec![4]],
            ),
        ] {
            assert_eq!(rounds_of(&waiting, 2), expected, "{what}");
        }
    }

    /// Commands that may wait, in the model.
    const QUEUE: usize = 12;
    /// Each command that is before another may be a big one, and the small ones go before it.
    const ROUNDS: usize = (QUEUE + 1) * (QUEUE + 1);

    fn commands(most: usize) -> impl Strategy<Value = Vec<(u8, Size)>> {
        let size = prop_oneof![6 => Just(Small), 1 => Just(Big), 1 => Just(Alone)];
        proptest::collection::vec((0..5_u8, size), 0..most)
    }

    proptest! {
        /// Whatever keeps coming, as much as the queue takes: every command is taken within a bound.
        #[test]
        fn nobody_starves(most in 1..5_usize, arrivals in proptest::collection::vec(commands(6), 400)) {
            let mut turns = Turns::new();
            let mut waiting = Vec::<((u64, Size), usize)>::new();
            for (round, arrived) in arrivals.into_iter().enumerate() {
                for (caller, size) in arrived.into_iter().take(QUEUE - waiting.len()) {
                    waiting.push(((turns.enter(caller), size), round));
                }
                let now: Vec<(u64, Size)> = waiting.iter().map(|(command, _)| *command).collect();
                let chosen = turns.select(&now, most);
                prop_assert_eq!(chosen.is_empty(), waiting.is_empty());
                prop_assert!(chosen.is_sorted() && chosen.len() <= most);
                prop_assert!(chosen.len() == 1 || chosen.iter().all(|at| now[*at].1 == Small));
                prop_assert!(turns.last.len() <= QUEUE);
                for index in chosen.into_iter().rev() {
                    waiting.remove(index);
                }
                let oldest = waiting.iter().map(|(_, since)| round - since).max();
                prop_assert!(oldest.is_none_or(|waited| waited <= ROUNDS), "{waiting:?}");
            }
        }

        /// However many the others have waiting, and keep sending: a caller that comes with one waits for one command
        /// of each of the others at most.
        #[test]
        fn those_with_many_do_not_delay_one_with_few(others in 1..9_u8, each in 1..50_usize, served in 0..50_usize) {
            const MOST: usize = 4;
            let mut turns = Turns::new();
            let mut waiting = Vec::new();
            for caller in (1..=others).cycle().take(each * usize::from(others)) {
                waiting.push((caller, turns.enter(caller)));
            }
            let take = |turns: &mut Turns<u8>, waiting: &mut Vec<(u8, u64)>| {
                let now: Vec<(u64, Size)> = waiting.iter().map(|(_, turn)| (*turn, Small)).collect();
                let chosen = turns.select(&now, MOST);
                chosen.into_iter().rev().map(|index| waiting.remove(index).0).collect::<Vec<_>>()
            };
            for _ in 0..served.min(waiting.len() / MOST) {
                for caller in take(&mut turns, &mut waiting) {
                    waiting.push((caller, turns.enter(caller)));
                }
            }
            waiting.push((0, turns.enter(0)));
            let mut rounds = 1;
            while !take(&mut turns, &mut waiting).contains(&0) {
                rounds += 1;
            }
            let bound = (2 * usize::from(others) + 1).div_ceil(MOST);
            prop_assert!(rounds <= bound, "{rounds} rounds, {bound} at most");
        }
    }
}
