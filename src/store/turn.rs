//! Whose turn it is: which of the waiting commands make the next batch. What must
//! hold: nobody waits for ever, and a small command waits for at most one big one
//! that came to its turn before. The order of commands that wait at the same time
//! is not promised to anybody.

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

/// The indices of the next batch, rising. `owed` is what is left of the small
/// commands that waited behind the last big one: they go before the next big one,
/// those that came later do not, so that the big ones have their turn as well.
pub(super) fn select(sizes: &[Size], owed: &mut usize) -> Vec<usize> {
    let small = |(_, size): &(usize, &Size)| **size != Size::Big;
    let small_waiting = sizes.iter().enumerate().filter(small).count();
    *owed = small_waiting.min(*owed);
    let front =
        if *owed > 0 { sizes.iter().enumerate().find(small) } else { sizes.iter().enumerate().next() };
    let chosen: Vec<usize> = match front {
        None => return Vec::new(),
        Some((index, Size::Big)) => {
            *owed = small_waiting;
            return vec![index];
        }
        Some((index, Size::Alone)) => vec![index],
        Some((index, Size::Small)) => {
            // Past the big ones, which have their turn next, up to one that goes alone.
            let rest = sizes.iter().enumerate().skip(index).filter(small);
            let together = rest.take_while(|(_, size)| **size == Size::Small);
            together.map(|(index, _)| index).take(BATCH_MAX_COMMANDS).collect()
        }
    };
    *owed = owed.saturating_sub(chosen.len());
    chosen
}

#[cfg(test)]
mod tests {
    use super::Size::{Alone, Big, Small};
    use super::*;

    /// The order in which commands that wait at once are taken.
    fn rounds(sizes: &[Size]) -> Vec<Vec<usize>> {
        let (mut left, mut owed) = ((0..sizes.len()).collect::<Vec<_>>(), 0);
        let mut all = Vec::new();
        while !left.is_empty() {
            let now: Vec<Size> = left.iter().map(|index| sizes[*index]).collect();
            let chosen = select(&now, &mut owed);
            assert!(!chosen.is_empty(), "nobody has the turn");
            all.push(chosen.iter().map(|at| left[*at]).collect());
            left = (0..left.len()).filter(|at| !chosen.contains(at)).map(|at| left[at]).collect();
        }
        all
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
        let (mut waiting, mut owed) = (vec![Big, Big, Small], 0);
        let mut bigs = 0;
        for _ in 0..4 {
            for index in select(&waiting.clone(), &mut owed).into_iter().rev() {
                bigs += usize::from(waiting.remove(index) == Big);
            }
            waiting.push(Small);
        }
        assert_eq!(bigs, 2);
    }

    #[test]
    fn without_big_ones_it_is_the_order_of_the_queue() {
        assert_eq!(rounds(&[Small, Small, Alone, Small]), [vec![0, 1], vec![2], vec![3]]);
        assert!(rounds(&[]).is_empty());
    }
}
