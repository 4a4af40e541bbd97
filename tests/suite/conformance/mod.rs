//! Conformance: every case of the shared folder and of `tests/cases`, one outcome per case and adapter.
//!
//! A case that does not pass yet is listed in `conformance-exceptions.txt` with its reason. The list is checked both
//! ways: a listed case that passes fails the suite, and so does a name that no case has.

mod delivery;
mod facade;
mod fingerprint;
mod http;
mod live;
mod materialize;
mod model;
mod schedule;

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use anyhow::{Context, Result, bail, ensure};
use domain::LiveSettings;
use lake::EntryLake;
use libtest_mimic::Trial;
use tests::{
    case::{Case, Kind},
    site::Site,
    world::{Adapter, Lab},
};

use crate::plain::{block_on, test, test_emulated};

/// When set, the shared folder must be there.
const REQUIRED: &str = "HEADWATER_CONFORMANCE_REQUIRED";

/// When it is `all`, every case is replayed on the emulator, and not only [`ON_AWS`].
const AWS: &str = "HEADWATER_CONFORMANCE_AWS";
/// Cases that are replayed on AWS in every run. A case makes hundreds of requests there, so these stand for the others:
/// each strategy and kind of change (L01 append, L03 merge, L04 delete+insert, L15 and L20 changes of other databases), a chain (L07), two
/// inputs (L10), a diamond (H02), rows that others left in the warehouse (L14), a failed assertion (L23), retries (L25), a
/// pause (L27), schema changes (L32, H10), announcements out of order (D02), and entries: a hit (M01), data that is gone (M11),
/// an orphan (M13), a rebuild behind a stale answer (M15), the calls of a frame (M18), and what calls are named (M19).
const ON_AWS: [&str; 21] = [
    "L01", "L03", "L04", "L07", "L10", "L14", "L15", "L20", "L23", "L25", "L27", "L32", "D02",
    "H02", "H10", "M01", "M11", "M13", "M15", "M18", "M19",
];

fn shared() -> Option<PathBuf> {
    tests::folder_of("HEADWATER_CONFORMANCE", "../shared/conformance")
}

fn exceptions_file() -> PathBuf {
    tests::root().join("tests/conformance-exceptions.txt")
}

/// All tests of this family.
pub(crate) fn trials() -> Vec<Trial> {
    let exceptions = exceptions().unwrap_or_default();
    let mut trials = vec![
        test(
            "conformance::the_shared_cases_are_there_when_required",
            shared_cases_are_there,
        ),
        test(
            "conformance::every_exception_names_a_case_and_a_reason",
            exceptions_name_cases,
        ),
    ];
    for path in files() {
        let Some(id) = path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
        else {
            continue;
        };
        match Case::read(&path) {
            Ok(case) => {
                for (name, adapter) in variants(&case) {
                    let case = case.clone();
                    let listed = exceptions.get(&id).cloned();
                    trials.push(test(name, move || {
                        judge(replay(&case, adapter), listed.as_deref())
                    }));
                }
                trials.extend(on_aws(case, exceptions.get(&id).cloned()));
            }
            Err(error) => trials.push(test(format!("conformance::{id}"), move || Err(error))),
        }
    }
    trials
}

/// The case on the emulator, when it is one of those that run there.
fn on_aws(case: Case, listed: Option<String>) -> Option<Trial> {
    let all = std::env::var(AWS).is_ok_and(|cases| cases == "all");
    let wanted = all || ON_AWS.contains(&case.id.as_str());
    let runs = matches!(
        case.kind,
        Kind::Live(_)
            | Kind::Delivery(_)
            | Kind::Materialize(_)
            | Kind::Fingerprint { .. }
            | Kind::Facade { .. }
    );
    (wanted && runs).then(|| {
        test_emulated(format!("conformance::{}::aws", case.id), || async move {
            let outcome = match &case.kind {
                Kind::Delivery(live) => delivery::replay(live, Adapter::Aws).await,
                Kind::Live(live) => live::replay(live, Adapter::Aws).await,
                Kind::Materialize(case) => materialize::replay(case, Adapter::Aws).await,
                Kind::Fingerprint { pairs } => fingerprint::replay(pairs, Adapter::Aws).await,
                Kind::Facade { rows, cases } => facade::replay(rows, cases, Adapter::Aws).await,
                _ => bail!("no such case runs on AWS"),
            };
            let outcome = outcome.with_context(|| format!("{}: {}", case.id, case.title));
            judge(outcome, listed.as_deref())
        })
    })
}

/// Cases of the shared folder, if it is there, and our own.
fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in shared()
        .into_iter()
        .chain([tests::root().join("tests/cases")])
    {
        let Ok(entries) = fs::read_dir(folder) else {
            continue;
        };
        files.extend(
            entries
                .flatten()
                .map(|entry| entry.path())
                .filter(|path| path.extension() == Some("json".as_ref())),
        );
    }
    files.sort();
    files
}

fn variants(case: &Case) -> Vec<(String, Adapter)> {
    let id = &case.id;
    match case.kind {
        Kind::Live(_) | Kind::Delivery(_) | Kind::Http(_) => Adapter::LOCAL
            .into_iter()
            .map(|adapter| (format!("conformance::{id}::{}", adapter.name()), adapter))
            .collect(),
        // Cycles have no part in entries.
        Kind::Materialize(_) | Kind::Fingerprint { .. } | Kind::Facade { .. } => {
            [Adapter::Memory, Adapter::Embedded]
                .into_iter()
                .map(|adapter| (format!("conformance::{id}::{}", adapter.name()), adapter))
                .collect()
        }
        Kind::Validate { .. } | Kind::ConfigParse { .. } | Kind::Schedule(_) => {
            vec![(format!("conformance::{id}"), Adapter::Memory)]
        }
    }
}

fn replay(case: &Case, adapter: Adapter) -> Result<()> {
    match &case.kind {
        Kind::Live(live) => block_on(live::replay(live, adapter)),
        Kind::Delivery(live) => block_on(delivery::replay(live, adapter)),
        Kind::Http(http) => block_on(http::replay(http, adapter)),
        Kind::Validate { cases } => model::validate(cases),
        Kind::ConfigParse { cases } => model::parse(cases),
        Kind::Schedule(schedule) => schedule::replay(schedule),
        Kind::Materialize(case) => block_on(materialize::replay(case, adapter)),
        Kind::Fingerprint { pairs } => block_on(fingerprint::replay(pairs, adapter)),
        Kind::Facade { rows, cases } => block_on(facade::replay(rows, cases, adapter)),
    }
    .with_context(|| format!("{}: {}", case.id, case.title))
}

/// Routes without models over what an adapter keeps; links lead to the store itself where it signs them.
async fn site(adapter: Adapter, settings: &str) -> Result<Site> {
    let mut lab = Lab::open(adapter, &[], LiveSettings::default()).await?;
    if let Some(place) = &lab.place {
        let entries = EntryLake::new(lab.objects.clone()).signed_by(place.s3());
        lab.world.entries = Arc::new(entries);
    }
    Site::new(lab, settings)
}

/// A listed case has to fail, any other has to pass.
fn judge(outcome: Result<()>, listed: Option<&str>) -> Result<()> {
    match (outcome, listed) {
        (outcome, None) => outcome,
        (Ok(()), Some(reason)) => {
            bail!("passes, but is listed as an exception ({reason}): take it off the list")
        }
        (Err(error), Some(reason)) => {
            println!("exception: {reason}: {error:#}");
            Ok(())
        }
    }
}

/// Exceptions: case to reason.
fn exceptions() -> Result<BTreeMap<String, String>> {
    let path = exceptions_file();
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut all = BTreeMap::new();
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (id, reason) = line
            .split_once(char::is_whitespace)
            .with_context(|| format!("`{line}` has no reason"))?;
        ensure!(!reason.trim().is_empty(), "`{line}` has no reason");
        let before = all.insert(id.to_owned(), reason.trim().to_owned());
        ensure!(before.is_none(), "`{id}` is listed twice");
    }
    Ok(all)
}

fn shared_cases_are_there() -> Result<()> {
    ensure!(
        shared().is_some() || !tests::is_set(REQUIRED),
        "no conformance folder, and {REQUIRED} is set"
    );
    Ok(())
}

fn exceptions_name_cases() -> Result<()> {
    let exceptions = exceptions()?;
    if shared().is_none() {
        println!("the shared cases are absent: names are not checked");
        return Ok(());
    }
    let files = files();
    for id in exceptions.keys() {
        let known = files.iter().any(|path| {
            path.file_stem()
                .is_some_and(|stem| stem.to_string_lossy() == *id)
        });
        ensure!(
            known,
            "`{id}` is listed as an exception, but there is no such case"
        );
    }
    Ok(())
}
