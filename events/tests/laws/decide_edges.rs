//! Decisions about edges and their cells: tables of given, when, then.

use headwater_events::actor::Caller;
use headwater_events::admin::{AdminCommand, AdminView, decide};
use headwater_events::domain::LabelsPatch;
use headwater_events::edge::*;
use headwater_events::ids::{EdgeId, Revision};
use uuid::Uuid;

use crate::given::{NOW, OPERATION, TENANT, told, user};

const EDGE: EdgeId = EdgeId::from_uuid(Uuid::from_u128(20));

fn created(name: &str, country: &str, continent: &str, cells: u8) -> EdgeCommand {
    EdgeCommand::Create(
        EdgeCreated {
            name: name.into(),
            country: country.into(),
            continent: continent.into(),
            cells,
            labels: [].into(),
            external_id: None,
        },
        Vec::new(),
    )
}

fn state() -> EdgeState {
    let settings = EdgeSettings {
        country: "DE".into(),
        continent: "EU".into(),
        labels: [("env".to_owned(), "prod".to_owned())].into(),
        external_id: None,
    };
    EdgeState {
        name: "fra1".into(),
        settings,
        addresses: Vec::new(),
        cells: 2,
        enabled: true,
        drained: false,
        drained_cells: [].into(),
        has_identity: true,
        is_cloned: false,
    }
}

fn given(state: Option<EdgeState>) -> AdminView {
    let revision = Revision::new(if state.is_some() { 3 } else { 0 });
    AdminView { revision, edge: EdgeView { edge: state, ..EdgeView::default() }, ..AdminView::default() }
}

fn there() -> AdminView {
    given(Some(state()))
}

fn cell(cell: u8, drained: bool) -> EdgeCommand {
    EdgeCommand::SetCellDrained { cell, drained }
}

fn patch(country: Option<&str>, labels: Option<LabelsPatch>) -> EdgeCommand {
    EdgeCommand::Update(EdgePatch { country: country.map(str::to_owned), labels, ..EdgePatch::default() })
}

fn rows() -> Vec<(AdminView, EdgeCommand, &'static str)> {
    let new = || given(None);
    let with = |change: fn(&mut EdgeState)| {
        let mut state = state();
        change(&mut state);
        given(Some(state))
    };
    let issued = || {
        EdgeCommand::RecordIdentity(IdentityIssued { serial: "0b".into(), key: "ab".into(), not_after: NOW })
    };
    let clone = || EdgeCommand::ReportClone(IdentityCloned { serial: "0b".into(), sign: CloneSign::Keys });
    let revoke = || EdgeCommand::RevokeIdentity(RevocationReason::Rotated);
    let recorded = || {
        let mut view = there();
        view.edge.is_recorded = true;
        view
    };
    vec![
        (new(), created("fra1", "DE", "EU", 8), "1: edge.created"),
        (new(), created("fra1", "DE", "EU", 32), "1: edge.created"),
        (new(), created("", "DE", "EU", 1), "invalid: /name invalid_name"),
        (
            new(),
            created("fra1", "de", "eu", 1),
            "invalid: /country invalid_country, /continent invalid_continent",
        ),
        (new(), created("fra1", "DE", "EU", 0), "invalid: /cells out_of_range"),
        (new(), created("fra1", "DE", "EU", 33), "invalid: /cells out_of_range"),
        (AdminView { name_taken: true, ..new() }, created("fra1", "DE", "EU", 8), "name taken"),
        (new(), EdgeCommand::SetEnabled(true), "not found"),
        (there(), EdgeCommand::SetEnabled(true), "unchanged at 3"),
        (there(), EdgeCommand::SetEnabled(false), "4: edge.disabled"),
        (with(|edge| edge.enabled = false), EdgeCommand::SetEnabled(true), "4: edge.enabled"),
        (there(), EdgeCommand::SetDrained(true), "4: edge.drained"),
        (there(), EdgeCommand::SetDrained(false), "unchanged at 3"),
        (with(|edge| edge.drained = true), EdgeCommand::SetDrained(false), "4: edge.undrained"),
        (there(), cell(1, true), "4: edge.cell_drained"),
        (there(), cell(1, false), "unchanged at 3"),
        (there(), cell(2, true), "not found"),
        (with(|edge| edge.drained_cells = [0].into()), cell(1, true), "conflict: last_cell"),
        (with(|edge| edge.drained_cells = [0].into()), cell(0, false), "4: edge.cell_undrained"),
        (with(|edge| edge.cells = 1), cell(0, true), "conflict: last_cell"),
        (there(), patch(Some("FR"), None), "4: edge.updated"),
        (there(), patch(Some("DE"), None), "unchanged at 3"),
        (there(), patch(Some("XX"), None), "invalid: /country invalid_country"),
        (there(), patch(None, Some(LabelsPatch::Clear)), "4: edge.updated"),
        (there(), issued(), "4: edge.identity_issued"),
        (recorded(), issued(), "unchanged at 3"),
        (new(), issued(), "not found"),
        (there(), clone(), "4: edge.identity_cloned"),
        (with(|edge| edge.is_cloned = true), clone(), "unchanged at 3"),
        (with(|edge| edge.has_identity = false), clone(), "unchanged at 3"),
        (with(|edge| edge.has_identity = false), revoke(), "4: edge.identity_revoked"),
        (there(), EdgeCommand::Delete, "conflict: edge_enabled"),
        (with(|edge| edge.enabled = false), EdgeCommand::Delete, "4: edge.deleted"),
    ]
}

#[test]
fn a_table_of_decisions() {
    for (view, command, then) in rows() {
        let asked = AdminCommand::Edge { edge: EDGE, command };
        assert_eq!(told(&decide(&view, &asked, &Caller::system(), OPERATION)), then, "{asked:?} {view:?}");
        assert_eq!(told(&decide(&view, &asked, &user(TENANT), OPERATION)), "forbidden");
    }
}

#[test]
fn the_shared_pool_is_made_once() {
    let make =
        |view: &AdminView| told(&decide(view, &AdminCommand::CreateSharedPool, &Caller::system(), OPERATION));
    assert_eq!(make(&AdminView::default()), "1: pool.created");
    assert_eq!(make(&there()), "unchanged at 3");
}
