//! Placement moves only what must move; generations add up however a worker gets there.

use std::collections::BTreeSet;

use headwater_edge_wire::cell::*;
use headwater_edge_wire::ids::*;
use proptest::prelude::*;

use super::given::*;

fn cells() -> impl Strategy<Value = BTreeSet<CellNumber>> {
    proptest::collection::btree_set(
        (0..CELLS_PER_EDGE_MAX).prop_map(|n| CellNumber::try_from(n).unwrap()),
        1..20,
    )
}

fn replicas(n: u8) -> Replicas {
    Replicas::try_from(n).unwrap()
}

fn placed(domain: u128, cells: &BTreeSet<CellNumber>, n: u8) -> BTreeSet<CellNumber> {
    let cells: Vec<_> = cells.iter().copied().collect();
    place(edge_id(100), domain_id(domain), &cells, replicas(n)).into_iter().collect()
}

proptest! {
    #[test]
    fn as_many_as_there_are(domain: u64, cells in cells(), n in 1..=3_u8) {
        let placed = placed(domain.into(), &cells, n);
        prop_assert_eq!(placed.len(), cells.len().min(n.into()));
        prop_assert!(placed.is_subset(&cells));
    }

    #[test]
    fn a_cell_that_goes_moves_only_what_stood_on_it(domain: u64, cells in cells(), gone: prop::sample::Index, n in 1..=3_u8) {
        let gone = *gone.get(&cells.iter().copied().collect::<Vec<_>>());
        let before = placed(domain.into(), &cells, n);
        let mut left = cells.clone();
        left.remove(&gone);
        let after = placed(domain.into(), &left, n);
        let stayed: BTreeSet<_> = before.iter().copied().filter(|cell| *cell != gone).collect();
        prop_assert!(stayed.is_subset(&after));
        if !before.contains(&gone) {
            prop_assert_eq!(before, after);
        }
    }

    #[test]
    fn order_and_doubles_make_no_difference(domain: u64, mut cells in Just(CellNumber::first(8)).prop_shuffle()) {
        let sorted = place(edge_id(1), domain_id(domain.into()), &CellNumber::first(8), replicas(3));
        cells.extend(cells.clone());
        prop_assert_eq!(place(edge_id(1), domain_id(domain.into()), &cells, replicas(3)), sorted);
    }

    /// More replicas keep the cells of fewer.
    #[test]
    fn one_more_replica_moves_nothing(domain: u64, cells in cells(), n in 1..=2_u8) {
        prop_assert!(placed(domain.into(), &cells, n).is_subset(&placed(domain.into(), &cells, n + 1)));
    }

    /// From any generation of the list, or from nothing, a worker ends with the same set of deltas over the same base.
    #[test]
    fn every_way_leads_to_the_generation(steps in proptest::collection::vec(1..5_u32, 0..30), at: prop::sample::Index) {
        let mut manifest = GenerationManifest::whole(Generation::from(10), Epoch::from(1), Sequence::ZERO);
        let mut number = 10;
        for step in steps {
            number += step;
            manifest = manifest.extended(Generation::from(number), Sequence::from(number)).unwrap();
        }
        prop_assert_eq!(&GenerationManifest::parse(&manifest.bytes().unwrap()).unwrap(), &manifest);
        let mut line = vec![manifest.base];
        line.extend(&manifest.deltas);
        let had = at.index(line.len());
        match to_load(Some(line[had]), &manifest) {
            Load::Nothing => prop_assert_eq!(had, line.len() - 1),
            Load::Deltas(deltas) => prop_assert_eq!(&deltas[..], &line[had + 1..]),
            Load::Whole(..) => prop_assert!(false, "reads everything again"),
        }
        let whole = Load::Whole(manifest.base, manifest.deltas.clone());
        prop_assert_eq!(to_load(None, &manifest), whole.clone());
        prop_assert_eq!(to_load(Some(Generation::from(9)), &manifest), whole.clone());
        prop_assert_eq!(to_load(Some(Generation::from(number + 1)), &manifest), whole);
    }
}

#[test]
fn placement_is_golden_and_even() {
    let cells = CellNumber::first(8);
    let mut counts = [0_u32; 8];
    let mut first = Vec::new();
    for n in 0..8_000 {
        let placed = place(edge_id(100), domain_id(n), &cells, Replicas::ONE);
        counts[usize::from(placed[0].get())] += 1;
        if n < 8 {
            first.push(placed[0].get());
        }
    }
    // Every later version must place alike, or an upgrade would move everything.
    assert_eq!(first, FIRST_EIGHT);
    assert!(counts.iter().all(|count| (880..1_120).contains(count)), "{counts:?}");
    assert_eq!(place(edge_id(1), domain_id(1), &[], replicas(3)), []);
    assert!(Replicas::try_from(0).is_err() && Replicas::try_from(4).is_err());
}

const FIRST_EIGHT: [u8; 8] = [7, 5, 4, 1, 7, 4, 3, 5];

#[test]
fn a_base_is_written_when_it_pays() {
    let mut manifest = GenerationManifest::whole(Generation::from(1), Epoch::from(1), Sequence::ZERO);
    let written = |base_lines, delta_lines| Written { base_lines, delta_lines };
    let epoch = Epoch::from(1);
    assert!(must_compact(&manifest, Epoch::from(2), written(0, 1)));
    assert!(!must_compact(&manifest, epoch, written(0, 1_023)));
    assert!(must_compact(&manifest, epoch, written(0, 1_024)));
    assert!(!must_compact(&manifest, epoch, written(100_000, 49_999)));
    assert!(must_compact(&manifest, epoch, written(100_000, 50_000)));
    for n in 2..=1_001_u32 {
        assert!(!must_compact(&manifest, epoch, written(100_000, n.into())), "{n}");
        manifest = manifest.extended(Generation::from(n), Sequence::from(n)).unwrap();
    }
    assert!(must_compact(&manifest, epoch, written(100_000, 1_001)));
    assert_eq!(manifest.extended(Generation::from(1_002), Sequence::from(1_002)), None);
    assert!(GenerationManifest::parse(&manifest.bytes().unwrap()).is_ok());
}

#[test]
fn generations_out_of_order_are_refused() {
    for text in [
        r#"{"generation":3,"epoch":1,"sequence":1,"base":1,"deltas":[3,2]}"#,
        r#"{"generation":3,"epoch":1,"sequence":1,"base":1,"deltas":[2]}"#,
        r#"{"generation":3,"epoch":1,"sequence":1,"base":2,"deltas":[]}"#,
        r#"{"generation":3,"epoch":1,"sequence":1,"base":3,"deltas":[3]}"#,
        r#"{"generation":3, "epoch":1,"sequence":1,"base":3,"deltas":[]}"#,
    ] {
        assert!(GenerationManifest::parse(text.as_bytes()).is_err(), "{text}");
    }
}
