//! The rows of webhooks: every fault of each body, in order.

use serde_json::json;

use super::Row;

pub(super) fn webhooks() -> Vec<Row> {
    let wrong = "invalid_type";
    let (hooks, hook, replay) = ("/api/webhooks", "/api/webhooks/{id}", "/api/webhooks/{id}/replay");
    vec![
        ("post", hooks, json!({}), vec![("/name", "missing"), ("/url", "missing")]),
        (
            "post",
            hooks,
            json!({"name": "", "url": 1, "types": ["A"], "domains": ["a..b"], "labels": {"a": 1}, "enabled": 1,
                "platform": "x", "tenant": 2, "description": [], "x": 3}),
            vec![
                ("/description", wrong),
                ("/domains/0", "invalid_name"),
                ("/enabled", wrong),
                ("/labels/a", wrong),
                ("/name", "invalid_name"),
                ("/platform", wrong),
                ("/tenant", wrong),
                ("/types/0", "invalid_type_filter"),
                ("/url", wrong),
                ("/x", "unknown_field"),
            ],
        ),
        (
            "post",
            hooks,
            json!({"name": "n", "url": "https://x.example/", "platform": true, "tenant": uuid::Uuid::nil()}),
            vec![("/platform", "contradicts")],
        ),
        (
            "patch",
            hook,
            json!({"name": 1, "url": 2, "types": "x", "domains": [1], "labels": 3, "description": 4, "enabled": 5,
                "rotate_secret": 6, "x": 7}),
            vec![
                ("/description", wrong),
                ("/domains/0", wrong),
                ("/enabled", wrong),
                ("/labels", wrong),
                ("/name", wrong),
                ("/rotate_secret", wrong),
                ("/types", wrong),
                ("/url", wrong),
                ("/x", "unknown_field"),
            ],
        ),
        (
            "patch",
            hook,
            json!({"rotate_secret": true, "enabled": false}),
            vec![("/rotate_secret", "stands_alone")],
        ),
        ("post", replay, json!({}), vec![("/after", "missing")]),
        (
            "post",
            replay,
            json!({"after": "x", "y": 1}),
            vec![("/after", "invalid_position"), ("/y", "unknown_field")],
        ),
    ]
}
