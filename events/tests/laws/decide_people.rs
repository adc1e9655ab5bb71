//! Decisions about users and tenants that are there: tables of given, when, then.

use headwater_events::actor::Caller;
use headwater_events::admin::{
    AdminCommand, AdminView, PeopleView, TenantPatch, UserFacts, UserPatch, decide,
};
use headwater_events::ids::{Revision, TokenId, UserId};
use headwater_events::people::{TenantSettings, TokenLimits};
use uuid::Uuid;

use crate::given::{OPERATION, TENANT, told, user};

/// The one that [`user`] gives.
const USER: UserId = UserId::from_uuid(Uuid::from_u128(9));
const OTHER: UserId = UserId::from_uuid(Uuid::from_u128(10));

fn seen(people: PeopleView) -> AdminView {
    AdminView {
        revision: Revision::new(3),
        user_exists: people.user.is_some(),
        people,
        ..AdminView::default()
    }
}

fn of(admin: bool, enabled: bool, others: i64) -> AdminView {
    let user = Some(UserFacts { admin, enabled });
    seen(PeopleView { user, other_administrators: others, ..PeopleView::default() })
}

fn tenant(domains: i64) -> AdminView {
    let settings = TenantSettings { name: "Acme".into(), labels: [].into(), external_id: None };
    seen(PeopleView { tenant: Some(settings), domains, ..PeopleView::default() })
}

fn update(patch: UserPatch) -> AdminCommand {
    AdminCommand::UpdateUser { user: USER, patch }
}

fn rename(name: &str) -> AdminCommand {
    let patch = TenantPatch { name: Some(name.into()), ..TenantPatch::default() };
    AdminCommand::UpdateTenant { tenant: TENANT, patch }
}

fn token(limits: TokenLimits) -> AdminCommand {
    let token = TokenId::from_uuid(Uuid::from_u128(11));
    let managing = Default::default();
    AdminCommand::CreateToken {
        user: USER,
        token,
        name: "ci".into(),
        expires_at: None,
        scopes: None,
        limits,
        managing,
    }
}

fn rows() -> Vec<(AdminView, AdminCommand, &'static str)> {
    let admin = |admin| update(UserPatch { admin: Some(admin), email: false });
    let name = || update(UserPatch::default());
    let enable = |enabled| AdminCommand::SetUserEnabled { user: USER, enabled };
    let delete = || AdminCommand::DeleteUser { user: USER };
    let password = || AdminCommand::SetPassword { user: USER };
    let gone = || seen(PeopleView::default());
    let known = |differs: &[&'static str]| {
        let mut view = of(false, true, 1);
        view.people.differs = differs.to_vec();
        view
    };
    let taken = || AdminView { name_taken: true, ..known(&["email"]) };
    let unused = |days| TokenLimits { max_unused_days: Some(days), networks: Vec::new() };
    let end = || AdminCommand::DeleteTenant { tenant: TENANT };
    let own = || {
        let mut view = tenant(0);
        view.people.is_platform = true;
        view
    };
    vec![
        (of(false, true, 1), admin(true), "4: user.updated"),
        (of(false, true, 1), admin(false), "unchanged at 3"),
        (of(true, true, 1), admin(false), "4: user.updated"),
        (of(true, true, 0), admin(false), "conflict: last_administrator"),
        (of(true, false, 0), admin(false), "4: user.updated"),
        (gone(), admin(true), "not found"),
        (known(&["name"]), name(), "4: user.profile_changed"),
        (known(&[]), name(), "unchanged at 3"),
        (known(&["email"]), update(UserPatch { admin: None, email: true }), "4: user.profile_changed"),
        (
            known(&["email"]),
            update(UserPatch { admin: Some(true), email: true }),
            "4: user.updated, user.profile_changed",
        ),
        (taken(), update(UserPatch { admin: None, email: true }), "name taken"),
        (of(false, true, 0), enable(false), "4: user.disabled"),
        (of(false, false, 0), enable(false), "unchanged at 3"),
        (of(false, false, 0), enable(true), "4: user.enabled"),
        (of(true, true, 0), enable(false), "conflict: last_administrator"),
        (of(true, true, 1), enable(false), "4: user.disabled"),
        (gone(), enable(true), "not found"),
        (of(true, true, 0), delete(), "conflict: last_administrator"),
        (of(true, false, 0), delete(), "4: user.deleted"),
        (of(false, true, 0), delete(), "4: user.deleted"),
        (gone(), delete(), "not found"),
        (of(true, true, 0), password(), "4: user.password_changed"),
        (gone(), password(), "not found"),
        (of(false, true, 0), token(TokenLimits::default()), "4: token.created"),
        (of(false, true, 0), token(unused(3_650)), "4: token.created"),
        (of(false, true, 0), token(unused(0)), "invalid: /max_unused_days out_of_range"),
        (of(false, true, 0), token(unused(3_651)), "invalid: /max_unused_days out_of_range"),
        (
            of(false, true, 0),
            token(TokenLimits { max_unused_days: None, networks: vec!["192.0.2.1".parse().unwrap(); 65] }),
            "invalid: /networks too_many",
        ),
        (gone(), token(TokenLimits::default()), "not found"),
        (tenant(2), rename("Acme Ltd"), "4: tenant.updated"),
        (tenant(2), rename("Acme"), "unchanged at 3"),
        (tenant(2), rename("\n"), "invalid: /name invalid_name"),
        (AdminView { name_taken: true, ..tenant(0) }, rename("Other"), "name taken"),
        (gone(), rename("Acme"), "not found"),
        (tenant(0), end(), "4: tenant.deleted"),
        (tenant(2), end(), "conflict: owns_domains"),
        (own(), end(), "conflict: platform_tenant"),
        (gone(), end(), "not found"),
    ]
}

#[test]
fn a_table_of_decisions() {
    for (view, command, then) in rows() {
        let decided = decide(&view, &command, &Caller::system(), OPERATION);
        assert_eq!(told(&decided), then, "{command:?} {view:?}");
    }
}

#[test]
fn users_may_say_their_name_and_change_their_password_and_no_more() {
    let anybody = user(TENANT);
    for (view, command, _) in rows() {
        let own = match &command {
            AdminCommand::UpdateUser { patch, .. } => *patch == UserPatch::default(),
            AdminCommand::SetPassword { .. } | AdminCommand::CreateToken { .. } => true,
            _ => false,
        };
        let refused = told(&decide(&view, &command, &anybody, OPERATION)) == "forbidden";
        assert_eq!(refused, !own, "{command:?}");
    }
    let there = of(false, true, 1);
    for of_other in [
        AdminCommand::SetPassword { user: OTHER },
        AdminCommand::UpdateUser { user: OTHER, patch: UserPatch::default() },
    ] {
        assert_eq!(told(&decide(&there, &of_other, &anybody, OPERATION)), "not found", "{of_other:?}");
    }
}
