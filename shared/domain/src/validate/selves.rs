//! Models that read themselves.

use super::codes::{check, check_place, load_all};

#[test]
fn a_view_has_no_rows_that_it_could_read() {
    let files = [
        ("gold.a", "SELECT x\nFROM gold.a"),
        (
            "gold.b",
            "@config materialized=ephemeral\nSELECT x FROM landing.ev\n  JOIN {this} USING (x)",
        ),
    ];
    check(&files, &["gold.a cycle!", "gold.b cycle!"]);
    check_place("SELECT x\nFROM silver.m", "cycle", 2, 6, "reads itself");
    check_place(
        "SELECT x FROM silver.more\nJOIN silver.m USING (x)",
        "cycle",
        2,
        6,
        "reads itself",
    );
    check_place(
        "@config tags=a\nSELECT x FROM landing.ev\n  JOIN {this} USING (x)",
        "cycle",
        3,
        8,
        "silver.m -> silver.m",
    );
}

#[test]
fn a_table_that_is_made_anew_does_not_read_itself() {
    let files = [
        ("gold.a", "@config materialized=table\nSELECT x FROM gold.a"),
        (
            "gold.b",
            "@config materialized=table\nSELECT x FROM landing.ev WHERE x IN (SELECT x FROM {this})",
        ),
        // Another name, and another schema.
        (
            "silver.a",
            "@config materialized=table\nSELECT x FROM gold.aa",
        ),
        ("gold.aa", "SELECT x FROM landing.ev"),
    ];
    check(&files, &["gold.a cycle!", "gold.b cycle!"]);
    check_place(
        "@config materialized=table\nSELECT x FROM landing.ev\nUNION ALL SELECT x FROM Silver.M",
        "cycle",
        3,
        25,
        "silver.m -> silver.m",
    );
    let auto = "@config materialized=incremental, live=true, incremental_strategy=auto\n";
    check_place(
        &format!(
            "{auto}SELECT x, count(*) AS n\nFROM landing.ev JOIN silver.m USING (x) GROUP BY x"
        ),
        "cycle",
        3,
        22,
        "from scratch",
    );
    // It is told once what is wrong with a placeholder.
    let placed = format!("{auto}SELECT x FROM landing.ev JOIN {{this}} USING (x)");
    let (_, findings) = load_all(&[("silver.m", &placed)]);
    let has = |code: &str| findings.iter().any(|finding| finding.code == code);
    assert!(
        has("auto_with_placeholder") && !has("cycle"),
        "{findings:?}"
    );
}
