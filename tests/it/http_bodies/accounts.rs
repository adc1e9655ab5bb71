//! The rows of tenants, members, users and tokens, and those of people: every fault of each body, in order.

use serde_json::json;

use super::Row;

pub(super) fn accounts() -> Vec<Row> {
    let wrong = "invalid_type";
    vec![
        (
            "post",
            "/api/tenants",
            json!({"name": "\u{1}", "labels": {"a": 1}, "external_id": [], "x": {}}),
            vec![
                ("/external_id", wrong),
                ("/labels/a", wrong),
                ("/name", "invalid_name"),
                ("/x", "unknown_field"),
            ],
        ),
        (
            "post",
            "/api/users",
            json!({"email": "x", "admin": 1, "tenant": 2, "x": 3}),
            vec![("/admin", wrong), ("/email", "invalid_email"), ("/tenant", wrong), ("/x", "unknown_field")],
        ),
        (
            "post",
            "/api/me/tokens",
            json!({"name": "", "expires_at": "soon", "scopes": [1], "networks": "x", "y": 1}),
            vec![
                ("/expires_at", "invalid_time"),
                ("/name", "invalid_name"),
                ("/networks", "invalid_type"),
                ("/scopes/0", wrong),
                ("/y", "unknown_field"),
            ],
        ),
        (
            "post",
            "/api/me/tokens",
            json!({"name": "", "expires_at": "2020-01-01T00:00:00Z"}),
            vec![("/expires_at", "in_the_past"), ("/name", "invalid_name")],
        ),
        (
            "post",
            "/api/me/tokens",
            json!({"name": "n", "scopes": [{"verbs": [], "domains": ["a..b"], "names": ["a.*.b"], "types": ["NOPE"]}]}),
            vec![
                ("/scopes/0/domains/0", "invalid_name"),
                ("/scopes/0/names/0", "invalid_name"),
                ("/scopes/0/types/0", "unsupported_type"),
                ("/scopes/0/verbs", "invalid_count"),
            ],
        ),
        (
            "put",
            "/api/tenants/{id}/members/{user}",
            json!({"role": "king", "x": 1}),
            vec![("/role", "unknown_role"), ("/x", "unknown_field")],
        ),
        (
            "put",
            "/api/domains/{d}/members/{user}",
            json!({"x": 1}),
            vec![("/role", "missing"), ("/x", "unknown_field")],
        ),
        (
            "post",
            "/api/tokens/revoke",
            json!({"token": 1, "x": 2}),
            vec![("/token", wrong), ("/x", "unknown_field")],
        ),
    ]
}

pub(super) fn people() -> Vec<Row> {
    let wrong = "invalid_type";
    vec![
        (
            "post",
            "/api/me/tokens",
            json!({"name": 1, "max_unused_days": 0, "networks": ["192.0.2.1/24", 1]}),
            vec![
                ("/max_unused_days", "out_of_range"),
                ("/name", wrong),
                ("/networks/0", "invalid_network"),
                ("/networks/1", wrong),
            ],
        ),
        (
            "patch",
            "/api/me",
            json!({"name": "\n", "admin": 1}),
            vec![("/admin", "unknown_field"), ("/name", "invalid_name")],
        ),
        (
            "put",
            "/api/me/password",
            json!({"new": "\ta", "x": 1}),
            vec![
                ("/current", "missing"),
                ("/new", "password_control_character"),
                ("/new", "password_too_short"),
                ("/x", "unknown_field"),
            ],
        ),
        (
            "patch",
            "/api/users/{id}",
            json!({"email": "x", "admin": 1, "name": [], "password": "short", "x": 2}),
            vec![
                ("/admin", wrong),
                ("/email", "invalid_email"),
                ("/name", wrong),
                ("/password", "password_too_short"),
                ("/password", "stands_alone"),
                ("/x", "unknown_field"),
            ],
        ),
        (
            "patch",
            "/api/tenants/{id}",
            json!({"name": "", "labels": {"a": 1}, "external_id": 2, "x": 3}),
            vec![
                ("/external_id", wrong),
                ("/labels/a", wrong),
                ("/name", "invalid_name"),
                ("/x", "unknown_field"),
            ],
        ),
        (
            "post",
            "/api/auth/login",
            json!({"email": "x", "password": 1, "y": 2}),
            vec![("/email", "invalid_email"), ("/password", wrong), ("/y", "unknown_field")],
        ),
    ]
}
