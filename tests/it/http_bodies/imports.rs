//! The rows of imports: every fault of each body, in order.

use serde_json::json;

use super::Row;

pub(super) fn imports() -> Vec<Row> {
    let wrong = "invalid_type";
    let (imports, cutover, compare) =
        ("/api/imports", "/api/imports/{id}/cutover", "/api/imports/{id}/compare");
    vec![
        ("post", imports, json!({}), vec![("/source", "missing")]),
        (
            "post",
            imports,
            json!({"source": {"kind": "archive"}, "mode": "x", "zones": ["a..b"], "activate": 1, "x": 2}),
            vec![
                ("/activate", wrong),
                ("/mode", "unknown_mode"),
                ("/source/path", "missing"),
                ("/x", "unknown_field"),
                ("/zones/0", "invalid_name"),
            ],
        ),
        (
            "post",
            cutover,
            json!({"without_last_look": 1, "x": 2}),
            vec![("/without_last_look", wrong), ("/x", "unknown_field")],
        ),
        ("post", compare, json!({}), vec![("/old", "missing")]),
        (
            "post",
            compare,
            json!({"old": "192.0.2.1", "zones": ["a..b"], "ignore_ttl": 1, "x": 2}),
            vec![
                ("/ignore_ttl", wrong),
                ("/old", "invalid_address"),
                ("/x", "unknown_field"),
                ("/zones/0", "invalid_name"),
            ],
        ),
    ]
}
