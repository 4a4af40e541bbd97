use super::*;

fn known() -> BTreeSet<TableName> {
    ["landing.ev", "landing.a", "landing.b"]
        .iter()
        .map(|name| name.parse().expect("a name"))
        .collect()
}

fn file(model: &str, text: &str) -> (String, String) {
    (
        format!("transform/{}.sql", model.replace('.', "/")),
        text.to_owned(),
    )
}

pub(super) fn load_all(files: &[(&str, &str)]) -> (Project, Vec<Finding>) {
    let files: Vec<_> = files
        .iter()
        .map(|(model, text)| file(model, text))
        .collect();
    Project::load(&files, Some(&known()))
}

/// Checks the findings as a set of `model code` with `!` behind errors and `?` behind warnings.
pub(super) fn check(files: &[(&str, &str)], expect: &[&str]) {
    let (_, findings) = load_all(files);
    let mut said: Vec<String> = findings
        .iter()
        .map(|f| {
            format!(
                "{} {}{}",
                f.model,
                f.code,
                if f.severity == Severity::Error {
                    '!'
                } else {
                    '?'
                }
            )
        })
        .collect();
    said.sort();
    let mut expect = expect.to_vec();
    expect.sort_unstable();
    assert_eq!(said, expect, "{files:?}\n{findings:#?}");
}

/// Checks one finding's place and a part of its message.
pub(super) fn check_place(text: &str, code: &str, line: usize, column: usize, part: &str) {
    let (_, findings) = load_all(&[("silver.m", text)]);
    let found = findings
        .iter()
        .find(|f| f.code == code)
        .unwrap_or_else(|| panic!("{code} in {findings:?}"));
    assert_eq!((found.line, found.column), (line, column), "{found:?}");
    assert!(found.message.contains(part), "{found:?}");
    assert_eq!(found.file, "transform/silver/m.sql");
}

const LIVE: &str = "materialized=incremental, live=true";
const BY_MARK: &str = "incremental_filter=WHERE _seq > {watermark}";

fn one(config: &str, expect: &[&str]) {
    let text = format!("@config {config}\nSELECT x FROM landing.ev");
    let expect: Vec<String> = expect
        .iter()
        .map(|code| format!("silver.m {code}"))
        .collect();
    check(
        &[("silver.m", &text)],
        &expect.iter().map(String::as_str).collect::<Vec<_>>(),
    );
}

#[test]
fn a_live_model_is_incremental_or_a_view() {
    one("materialized=table, live=true", &["live_materialization!"]);
    one(
        "materialized=snapshot, live=true, unique_key=x",
        &["live_materialization!"],
    );
    one(
        "materialized=ephemeral, live=true",
        &["live_materialization!"],
    );
    one("materialized=view, live=true", &[]);
    one("materialized=snapshot", &["snapshot_unsupported!"]);
}

#[test]
fn a_live_model_reads_what_changed() {
    one(
        &format!("{LIVE}, incremental_strategy=append"),
        &["live_append_needs_filter!", "live_not_incremental_read?"],
    );
    one(
        &format!("{LIVE}, incremental_strategy=append, {BY_MARK}"),
        &[],
    );
    one(
        &format!("{LIVE}, unique_key=x"),
        &["live_not_incremental_read?"],
    );
    one(
        &format!("{LIVE}, incremental_strategy=merge, {BY_MARK}"),
        &["missing_unique_key?"],
    );
}

#[test]
fn config_values_are_words_there_are() {
    one("materialized=view, live=ture", &["live_flag_not_boolean!"]);
    one(
        &format!("{LIVE}, incremental_strategy=append, live_interval=soon, {BY_MARK}"),
        &["live_interval_invalid!"],
    );
    one(
        "materialized=view, live_interval=10s",
        &["live_interval_without_live?"],
    );
    one(
        &format!("{LIVE}, incremental_strategy=append, target_lag=soon, {BY_MARK}"),
        &["target_lag_invalid!"],
    );
    one(
        &format!("{LIVE}, incremental_strategy=append, target_lag=10s, {BY_MARK}"),
        &[],
    );
    for dead in ["view", "table", "view, live=true"] {
        one(
            &format!("materialized={dead}, target_lag=10s"),
            &["target_lag_without_live?"],
        );
    }
    one("materialised=table", &["unknown_config_key!"]);
    one("materialized=tabel", &["unknown_materialization!"]);
    one("incremental_strategy=microbatch", &["unknown_strategy!"]);
    one(
        "materialized=incremental, unique_key=x, incremental_strategy=auto",
        &[],
    );
    one("on_schema_change=explode", &["unknown_on_schema_change!"]);
    one("on_bad_row=skip", &["unknown_on_bad_row!"]);
    one("live=false, live=false", &["duplicate_config_key!"]);
    one("incremental_filter=x > 1", &["filter_without_where!"]);
    one("partition_by=x", &["partition_by_not_applied?"]);
}

#[test]
fn change_events_need_a_key_an_order_and_a_strategy_that_replaces() {
    let cdc = "materialized=incremental, unique_key=x, cdc_op=op, cdc_seq=lsn";
    one(
        "materialized=incremental, incremental_strategy=append, cdc_op=op",
        &["cdc_op_seq_pair!", "cdc_strategy!", "cdc_needs_key!"],
    );
    one(
        &format!("{cdc}, cdc_deletes=maybe"),
        &["cdc_deletes_unknown!"],
    );
    one(&format!("{cdc}, cdc_deletes=soft"), &[]);
    one(
        "materialized=incremental, unique_key=x, cdc_deletes=soft",
        &["cdc_deletes_without_cdc?"],
    );
}

#[test]
fn watermarks_name_live_inputs_of_live_models() {
    let live = format!("@config {LIVE}, unique_key=id\n");
    let sql = |rest: &str| {
        format!(
            "{live}SELECT a.id FROM landing.a AS a JOIN landing.b AS b ON a.id = b.id WHERE {rest}"
        )
    };
    check(
        &[(
            "gold.w",
            "SELECT x FROM landing.ev WHERE _seq > {watermark}",
        )],
        &["gold.w watermark_without_live!"],
    );
    check(
        &[("gold.w", &sql("a._seq > {watermark}"))],
        &["gold.w watermark_ambiguous!"],
    );
    check(
        &[(
            "gold.w",
            &sql("a._seq > {watermark:landing.a} OR b._seq > {watermark:landing.b}"),
        )],
        &[],
    );
    check(
        &[("gold.w", &sql("a._seq > {watermark:landing.zzz}"))],
        &["gold.w watermark_unknown_input!"],
    );
    check(
        &[(
            "gold.w",
            &sql("'{watermark}' = \"{this}\" /* {watermark} */"),
        )],
        &["gold.w live_not_incremental_read?"],
    );
}

#[test]
fn batch_models_do_not_refresh_live_ones() {
    let table = (
        "silver.t",
        "@config materialized=table\nSELECT x FROM landing.ev",
    );
    let live = format!("@config {LIVE}, unique_key=x\n");
    let join = format!(
        "{live}SELECT t.x FROM silver.t AS t JOIN landing.ev AS e ON t.x = e.x WHERE e._seq > {{watermark}}"
    );
    check(
        &[table, ("gold.g", &join)],
        &["gold.g live_reads_batch_model?"],
    );
    let alone = format!("{live}SELECT x FROM silver.t WHERE x > (SELECT max(x) FROM {{this}})");
    check(
        &[table, ("gold.g", &alone)],
        &[
            "gold.g live_not_incremental_read?",
            "gold.g live_no_live_input?",
            "gold.g live_reads_batch_model?",
        ],
    );
}

#[test]
fn names_are_checked() {
    check(
        &[("landing.x", "SELECT x FROM landing.ev")],
        &["landing.x writes_landing!"],
    );
    check(
        &[("silver.a-b", "SELECT 1 AS x")],
        &["transform/silver/a-b.sql name_invalid!"],
    );
    check(
        &[("loose", "SELECT 1 AS x")],
        &["transform/loose.sql name_invalid!"],
    );
    check(
        &[
            ("loose", "@config schema=gold\nSELECT 1 AS x"),
            ("silver.y", "SELECT x FROM gold.loose"),
        ],
        &[],
    );
    check(
        &[
            ("gold.x", "SELECT 1 AS x"),
            ("silver.x", "@config schema=Gold\nSELECT 1 AS x"),
        ],
        &["gold.x duplicate_model!"],
    );
}

#[test]
fn an_ephemeral_model_has_nothing_to_assert() {
    check(
        &[(
            "silver.e",
            "@config materialized=ephemeral\n@assert row_count > 0\nSELECT x FROM landing.ev",
        )],
        &["silver.e ephemeral_assertions!"],
    );
}

#[test]
fn a_loop_is_named_and_reading_oneself_is_none() {
    let files = [
        ("gold.a", "SELECT x FROM gold.c"),
        (
            "gold.b",
            "@config materialized=incremental, unique_key=x\nSELECT x FROM gold.a JOIN {this} USING (x)",
        ),
        ("gold.c", "SELECT x FROM gold.b"),
        (
            "gold.d",
            "@config materialized=incremental, unique_key=x\nSELECT x FROM gold.a WHERE x > (SELECT max(x) FROM gold.d)",
        ),
    ];
    check(&files, &["gold.a cycle!"]);
    let (project, findings) = load_all(&files);
    assert!(
        findings[0]
            .message
            .contains("gold.a -> gold.c -> gold.b -> gold.a"),
        "{findings:?}"
    );
    assert_eq!(
        project
            .order
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["gold.d"]
    );
}

#[test]
fn inputs_that_do_not_exist_are_named_with_the_nearest() {
    check(
        &[("silver.m", "SELECT x FROM landing.nowhere")],
        &["silver.m missing_input?"],
    );
    check_place(
        "SELECT x\nFROM landing.ev\n  JOIN landing.aa USING (x)",
        "missing_input",
        3,
        8,
        "did you mean `landing.a`?",
    );
    let files = [
        file("silver.m", "SELECT x FROM landing.nowhere"),
        file("silver.n", "SELECT x FROM sliver.m"),
    ];
    let (_, findings) = Project::load(&files, None);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].message.contains("`silver.m`"), "{findings:?}");
    // A model that could not be read is there all the same.
    check(
        &[
            ("silver.a", "SELEC x"),
            ("silver.b", "SELECT x FROM silver.a"),
        ],
        &["silver.a sql_invalid!"],
    );
}

#[test]
fn findings_have_places_in_the_file() {
    check_place(
        "@config materialized=view,\n  materialised=view\nSELECT 1 AS x",
        "unknown_config_key",
        2,
        3,
        "did you mean `materialized`?",
    );
    check_place(
        "@config live=true, materialized=tabel\nSELECT 1 AS x",
        "unknown_materialization",
        1,
        20,
        "`tabel`",
    );
    check_place(
        "@confg live=true\nSELECT 1 AS x",
        "unknown_directive",
        1,
        1,
        "`@config`",
    );
    check_place(
        "@config tags=a\n\n\nSELECT x,\n   FROM landing.ev WHERE )",
        "sql_invalid",
        5,
        26,
        "xpected",
    );
    check_place(
        "@config tags=a\nSELECT x FROM ev",
        "sql_invalid",
        2,
        15,
        "`schema.ev`",
    );
    check_place(
        "SELECT {wtaermark} AS x",
        "sql_invalid",
        1,
        8,
        "{watermark}",
    );
    check_place(
        "@config tags=a, incremental_filter=WHERE a >\nSELECT 1 AS x",
        "filter_invalid",
        1,
        17,
        "an expression",
    );
    check_place(
        "SELECT 1 AS x;\nDROP TABLE silver.m",
        "sql_invalid",
        2,
        1,
        "one statement",
    );
    check_place("-- nothing yet\n", "empty_query", 0, 0, "SELECT");
}

#[test]
fn a_project_without_models_says_so() {
    check(&[], &[" no_models?"]);
}

#[test]
fn models_come_in_order_and_live_inputs_are_seen_through_views() {
    let live = |key: &str| format!("@config {LIVE}, unique_key=id, {BY_MARK}, tags={key}\n");
    let (project, findings) = load_all(&[
        (
            "gold.sum",
            &format!("{}SELECT id, _seq FROM gold.v2", live("a")),
        ),
        (
            "gold.v2",
            "@config materialized=ephemeral\nSELECT id, _seq FROM gold.v1",
        ),
        ("gold.v1", "SELECT id, _havn_seq FROM silver.o"),
        (
            "silver.o",
            &format!("{}SELECT id, _seq FROM landing.a", live("b")),
        ),
        (
            "silver.t",
            "@config materialized=table\n@depends_on gold.sum\nSELECT 1 AS one",
        ),
    ]);
    assert_eq!(findings, []);
    let words = |names: &[TableName]| {
        names
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        words(&project.order),
        "silver.o gold.v1 gold.v2 gold.sum silver.t"
    );
    let sum: TableName = "gold.sum".parse().expect("a name");
    assert_eq!(words(&project.inputs[&sum]), "silver.o");
    assert_eq!(
        project
            .live()
            .map(|m| m.name.to_string())
            .collect::<Vec<_>>(),
        ["silver.o", "gold.sum"]
    );
    assert_eq!(
        project
            .ancestors(&sum)
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["silver.o"]
    );
    assert_eq!(project.nearest("silver.oo").as_deref(), Some("silver.o"));
    assert_eq!(project.nearest("landing.aa").as_deref(), Some("landing.a"));
    assert_eq!(project.nearest("nothing_like_it"), None);
}
