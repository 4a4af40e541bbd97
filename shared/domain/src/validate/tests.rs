use std::collections::BTreeSet;

use super::*;

fn files(models: &[(&str, &str)]) -> Vec<(String, String)> {
    let path = |name: &str| format!("transform/{}.sql", name.replace('.', "/"));
    models
        .iter()
        .map(|(name, text)| (path(name), (*text).to_owned()))
        .collect()
}

#[track_caller]
fn check(models: &[(&str, &str)], expect: &[(&str, &str)]) {
    let known = BTreeSet::from(
        ["landing.ev", "landing.a", "landing.b"].map(|t| t.parse().expect("a name")),
    );
    let (_, findings) = Project::load(&files(models), Some(&known));
    let mut found: Vec<(String, &str)> =
        findings.iter().map(|f| (f.model.clone(), f.code)).collect();
    found.sort();
    let mut expect: Vec<_> = expect
        .iter()
        .map(|(model, code)| ((*model).to_owned(), *code))
        .collect();
    expect.sort();
    assert_eq!(found, expect, "{findings:#?}");
}

const LIVE: &str = "@config materialized=incremental, live=true, incremental_strategy=";

#[test]
fn a_live_model_is_incremental_or_a_view() {
    for word in ["table", "snapshot", "ephemeral"] {
        let text = format!("@config materialized={word}, live=true\nSELECT x FROM landing.ev");
        check(&[("gold.t", &text)], &[("gold.t", "live_materialization")]);
    }
    check(
        &[(
            "gold.t",
            "@config materialized=view, live=true\nSELECT x FROM landing.ev",
        )],
        &[],
    );
}

#[test]
fn a_live_model_reads_by_watermark() {
    let text = format!("{LIVE}append\nSELECT x FROM landing.ev");
    let both = [
        ("b.a", "live_append_needs_filter"),
        ("b.a", "live_not_incremental_read"),
    ];
    check(&[("b.a", &text)], &both);
    let text = format!(
        "{LIVE}append, incremental_filter=WHERE _seq > {{watermark}}\nSELECT x FROM landing.ev"
    );
    check(&[("b.a", &text)], &[]);
    let two = "SELECT a.id FROM landing.a a JOIN landing.b b ON a.id = b.id WHERE a._seq > ";
    let text = format!("{LIVE}merge, unique_key=id\n{two}{{watermark}}");
    check(&[("s.j", &text)], &[("s.j", "watermark_ambiguous")]);
    let text = format!("{LIVE}merge, unique_key=id\n{two}{{watermark:landing.a}}");
    check(&[("s.j", &text)], &[]);
    let text = format!(
        "{LIVE}merge, unique_key=id\nSELECT id FROM landing.a WHERE _seq > {{watermark:landing.z}}"
    );
    check(&[("s.j", &text)], &[("s.j", "watermark_unknown_input")]);
    check(
        &[("b.a", "SELECT x FROM landing.ev WHERE _seq > {watermark}")],
        &[("b.a", "watermark_without_live")],
    );
}

#[test]
fn batch_models_do_not_wake_live_ones() {
    let table = "@config materialized=table\nSELECT x FROM landing.ev";
    let text = format!(
        "{LIVE}merge, unique_key=x\nSELECT x FROM silver.t WHERE x > (SELECT max(x) FROM gold.g)"
    );
    check(
        &[("silver.t", table), ("gold.g", &text)],
        &[
            ("gold.g", "live_not_incremental_read"),
            ("gold.g", "live_no_live_input"),
            ("gold.g", "live_reads_batch_model"),
        ],
    );
}

#[test]
fn words_are_checked() {
    let sql = "\nSELECT x FROM landing.ev";
    let check = |config: &str, codes: &[&str]| {
        let expect: Vec<_> = codes.iter().map(|code| ("b.a", *code)).collect();
        check(&[("b.a", &format!("@config {config}{sql}"))], &expect);
    };
    check("materialized=view, live=ture", &["live_flag_not_boolean"]);
    check("materialised=table", &["unknown_config_key"]);
    check("materialized=tabel", &["unknown_materialization"]);
    check(
        "materialized=view, live_interval=10s",
        &["live_interval_without_live"],
    );
    check(
        "materialized=view, materialized=view",
        &["duplicate_config_key"],
    );
    check(
        "materialized=incremental, incremental_strategy=append, cdc_op=op",
        &["cdc_op_seq_pair", "cdc_strategy", "cdc_needs_key"],
    );
    let live = "materialized=incremental, live=true, unique_key=x, incremental_filter=WHERE _seq > {watermark}, ";
    check(
        &format!("{live}cdc_op=op, cdc_seq=lsn, cdc_deletes=maybe"),
        &["cdc_deletes_unknown"],
    );
    check(
        &format!("{live}cdc_deletes=soft"),
        &["cdc_deletes_without_cdc"],
    );
    check(
        &format!("{live}live_interval=soon"),
        &["live_interval_invalid"],
    );
    check(
        &format!("{live}incremental_strategy=upsert"),
        &["unknown_strategy"],
    );
}

#[test]
fn a_loop_is_named_and_left_out() {
    let models = files(&[
        ("a.x", "SELECT * FROM a.y"),
        ("a.y", "SELECT * FROM a.x"),
        ("a.z", "SELECT 1"),
    ]);
    let (project, findings) = Project::load(&models, None);
    assert_eq!(findings.len(), 1);
    assert_eq!(
        (findings[0].code, findings[0].model.as_str()),
        ("cycle", "a.x")
    );
    assert!(
        findings[0].message.contains("a.x -> a.y -> a.x"),
        "{}",
        findings[0].message
    );
    assert_eq!(project.order.len(), 1);
}

#[test]
fn findings_have_a_place_in_the_file() {
    let text = "@config materialized=view\n\nSELECT x\nFROM silver.ordrs";
    let (_, findings) = Project::load(
        &files(&[("silver.orders", "SELECT 1 AS x"), ("gold.g", text)]),
        None,
    );
    assert_eq!(
        (findings[0].code, findings[0].line, findings[0].column),
        ("missing_input", 4, 6)
    );
    assert!(
        findings[0].message.contains("did you mean `silver.orders`"),
        "{}",
        findings[0].message
    );
    let (_, findings) = Project::load(
        &files(&[("gold.g", "@config live=true,\n  tagz=a\nSELECT 1")]),
        None,
    );
    assert_eq!(
        (findings[0].code, findings[0].line, findings[0].column),
        ("unknown_config_key", 2, 3)
    );
    let (_, findings) = Project::load(
        &files(&[("gold.g", "@owner me\n\nSELECT 1\nFROM b.c WHERE )")]),
        None,
    );
    assert_eq!((findings[0].code, findings[0].line), ("sql_invalid", 4));
}

#[test]
fn views_and_ephemeral_models_are_looked_through() {
    let live = format!("{LIVE}merge, unique_key=x\nSELECT x FROM a.v WHERE _seq > {{watermark}}");
    let models = files(&[
        (
            "a.e",
            "@config materialized=ephemeral\nSELECT * FROM landing.ev",
        ),
        ("a.v", "SELECT * FROM a.e"),
        ("a.m", &live),
    ]);
    let (project, findings) = Project::load(&models, None);
    assert_eq!(findings, []);
    let inputs = &project.inputs[&"a.m".parse::<TableName>().expect("a name")];
    assert_eq!(
        inputs.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["landing.ev"]
    );
}
