//! Kinds `validate` and `config_parse`: model files in, findings or parts out.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use domain::{Project, Severity, TableName};
use tests::{
    case::{Expected, ModelText, Parse, Validate},
    world::table,
};

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// As a directive writes it.
fn assert_word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warn",
    }
}

/// Compares findings as sets, all differing checks at once.
pub(super) fn validate(cases: &[Validate]) -> Result<()> {
    report(
        cases
            .iter()
            .map(|case| (case.name.as_str(), findings(case))),
    )
}

fn findings(case: &Validate) -> Result<()> {
    let files: Vec<_> = case.models.iter().map(ModelText::file).collect();
    let known: BTreeSet<TableName> = case
        .known_tables
        .iter()
        .map(|name| table(name))
        .collect::<Result<_>>()?;
    let (_, found) = Project::load(&files, Some(&known));
    let got: BTreeSet<Expected> = found
        .iter()
        .map(|finding| Expected {
            model: finding.model.clone(),
            severity: word(finding.severity).to_owned(),
            code: finding.code.to_owned(),
        })
        .collect();
    let want: BTreeSet<Expected> = case.expect.iter().cloned().collect();
    if got != want {
        bail!("got {found:#?}, want {want:#?}");
    }
    Ok(())
}

/// Compares the parts of headers, all differing checks at once.
pub(super) fn parse(cases: &[Parse]) -> Result<()> {
    report(cases.iter().map(|case| (case.name.as_str(), parts(case))))
}

fn parts(case: &Parse) -> Result<()> {
    let header = domain::parse::header(&case.text);
    let want = &case.expect;
    if let Some(want) = &want.config {
        let got: BTreeMap<String, String> = header
            .config
            .iter()
            .map(|(key, value, _, _)| (key.clone(), value.clone()))
            .collect();
        same("config", &got, want)?;
    }
    if let Some(want) = &want.asserts {
        // The order of assertions says nothing: all are checked.
        let got: BTreeSet<_> = header
            .asserts
            .iter()
            .map(|check| {
                (
                    check.expression.clone(),
                    assert_word(check.severity).to_owned(),
                )
            })
            .collect();
        same("asserts", &got, &want.iter().cloned().collect())?;
    }
    if let Some(want) = &want.depends_on {
        same("depends_on", &header.depends_on, want)?;
    }
    if let Some(want) = &want.sql {
        same("sql", &header.sql.trim().to_owned(), want)?;
    }
    Ok(())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, want: &T) -> Result<()> {
    if got != want {
        bail!("{what}: got {got:?}, want {want:?}");
    }
    Ok(())
}

fn report<'a>(outcomes: impl Iterator<Item = (&'a str, Result<()>)>) -> Result<()> {
    let wrong: Vec<_> = outcomes
        .filter_map(|(name, outcome)| outcome.err().map(|error| format!("{name}: {error:#}")))
        .collect();
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(())
}
