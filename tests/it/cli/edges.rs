//! Edges by the commands, against a real `headwater serve` that listens for them, with what `init` made.

use std::os::unix::fs::PermissionsExt;

use super::walk::Platform;

#[tokio::test]
async fn an_edge_is_made_drained_enrolled_anew_and_retired() {
    let on = Platform::start().await;
    let mode = |file: &str| std::fs::metadata(on.dir.path().join(file)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("secret-key"), 0o600, "init made it");
    let made = on
        .expect(0, &["edge", "create", "fra1", "--country", "DE", "--continent", "EU", "--cells", "2"])
        .await;
    assert!(made.out.starts_with("HEADWATER_EDGE_TOKEN=hwe_") && made.out.lines().count() == 1, "{made:?}");
    let control = on.edge_control.to_string();
    assert!(made.out.contains(&format!("--control https://{control} --edge ")), "{made:?}");
    // Something answers there, and it speaks nothing but TLS.
    let plain = reqwest::get(format!("http://{control}/edge/v1/tasks")).await;
    assert!(plain.is_err_and(|error| !error.is_connect()));
    let taken = on.expect(3, &["edge", "create", "fra1", "--country", "DE", "--continent", "EU"]).await;
    assert!(taken.err.contains("[name_taken]"), "{taken:?}");
    let wrong = on.expect(1, &["edge", "create", "fra2", "--country", "xx", "--continent", "EU"]).await;
    assert!(wrong.err.contains("/country"), "{wrong:?}");

    on.expect(0, &["edge", "drain", "fra1", "--note", "new disks"]).await;
    on.expect(0, &["edge", "drain", "fra1", "--cell", "1"]).await;
    on.expect(3, &["edge", "drain", "fra1", "--cell", "0"]).await;
    let shown = on.json(&["edge", "status", "fra1"]).await;
    assert_eq!((&shown["drained"], &shown["cell_states"][1]["drained"]), (&true.into(), &true.into()));
    on.expect(0, &["edge", "undrain", "fra1"]).await;
    assert_eq!(on.json(&["edge", "list"]).await["items"][0]["drained"], false);

    let file = on.dir.path().join("fra1.token");
    let rotated = on.expect(0, &["edge", "rotate", "fra1", "--output", file.to_str().unwrap()]).await;
    assert!(!rotated.out.contains("hwe_") && !rotated.err.contains("hwe_"), "{rotated:?}");
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("hwe_"));
    assert_eq!(mode("fra1.token"), 0o600);

    on.expect(3, &["edge", "delete", "fra1"]).await;
    on.expect(0, &["edge", "disable", "fra1"]).await;
    on.expect(0, &["edge", "enable", "fra1"]).await;
    on.expect(0, &["edge", "disable", "fra1"]).await;
    on.expect(0, &["edge", "delete", "fra1"]).await;
    let gone = on.expect(1, &["edge", "status", "fra1"]).await;
    assert!(gone.err.contains("headwater edge list"), "{gone:?}");
}
