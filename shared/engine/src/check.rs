//! Whether models can be run over what has landed, without running them: the query engine plans each of them.

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::SchemaRef;
use domain::{
    Finding, Materialized, Model, SEQUENCE, Severity, TableName,
    items::Head,
    sql::{self, Bindings, Placeholder},
};
use ports::{
    Kind, Result,
    query::{Catalog, Statement, UNORDERED},
};

use crate::{
    World, freshness,
    ingest::QUARANTINE,
    load::{self, Items},
    pins,
    refresh::{
        auto, checks,
        events::{self, TOMBSTONES},
        make,
    },
};

/// What came of planning models.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Planned {
    /// What is wrong with them.
    pub findings: Vec<Finding>,
    /// Those that could not be planned, as what they read has not landed: whether its columns are there is not known yet.
    pub unplanned: Vec<TableName>,
}

/// Plans every model whose landing tables exist. Models that have not been built are looked through like views, so that
/// a whole project can be checked before its first run. What cannot be planned is a finding at the place in its file,
/// when the message names one.
///
/// # Errors
/// `Unavailable` or `Corrupt` from the ports; what is wrong with a model is a finding.
pub async fn models(world: &World) -> Result<Planned> {
    let mut tables: BTreeSet<TableName> = world.project.models.keys().cloned().collect();
    tables.extend(
        world
            .project
            .models
            .values()
            .flat_map(|m| m.reads.iter().cloned()),
    );
    for model in world.project.models.values() {
        tables.extend(asked(model));
        tables.extend(promised(model));
    }
    let items = Items::load(&*world.state, tables.iter().map(load::head)).await?;
    let mut heads = BTreeMap::new();
    for table in tables {
        if let Some(head) = items.head(&table)? {
            heads.insert(table, head);
        }
    }
    let check = Check { world, heads };
    let Planned {
        mut findings,
        mut unplanned,
    } = Planned::default();
    for model in check.in_order() {
        match check.model(model).await? {
            Some(found) => findings.extend(found),
            None => unplanned.push(model.name.clone()),
        }
        for promise in &model.source_freshness {
            if let Err(error) = freshness::promised(&model.file, promise) {
                let message = ports::error::chain(&error);
                findings.push(finding(model, "directive_invalid", message, (1, 1)));
            }
        }
        findings.extend(check.sources(model));
    }
    Ok(Planned {
        findings,
        unplanned,
    })
}

/// Tables that the assertions of a model read; what is wrong with one of them is told later.
fn asked(model: &Model) -> Vec<TableName> {
    let statements = model.asserts.iter().filter_map(|assert| {
        let check = checks::Check::read(&model.name, assert).ok()?;
        pins::tables(&model.file, &check.statement(&model.name)).ok()
    });
    statements.flatten().collect()
}

/// That nothing would tell which of several rows of one key is the last, where there may be several.
fn unordered(model: &Model, schema: &SchemaRef) -> Option<Finding> {
    let told = schema.metadata().get(UNORDERED)?;
    let unique: Option<Vec<String>> = serde_json::from_str(told).unwrap_or_default();
    let is_key = |column: &String| {
        let mut key = model.config.unique_key.iter();
        key.any(|key| key.eq_ignore_ascii_case(column))
    };
    if !make::is_merge(model) || unique.is_some_and(|unique| unique.iter().all(is_key)) {
        return None;
    }
    let message = format!(
        "which of several rows of one `unique_key` came last cannot be told, and a refresh that meets such rows fails: \
         have the query yield {SEQUENCE} of the table that its rows come from"
    );
    Some(Finding {
        severity: Severity::Warning,
        ..finding(model, "merge_unordered", message, (1, 1))
    })
}

/// Landing tables whose freshness a model promises.
fn promised(model: &Model) -> impl Iterator<Item = TableName> {
    let promises = model.source_freshness.iter();
    promises.filter_map(move |promise| {
        let (table, _) = freshness::promised(&model.file, promise).ok()?;
        Some(table)
    })
}

struct Check<'a> {
    world: &'a World,
    heads: BTreeMap<TableName, Head>,
}

impl Check<'_> {
    fn in_order(&self) -> impl Iterator<Item = &Model> {
        let project = &self.world.project;
        project
            .order
            .iter()
            .filter_map(|name| project.models.get(name))
    }

    /// What is wrong with a model; none when it cannot be planned.
    async fn model(&self, model: &Model) -> Result<Option<Vec<Finding>>> {
        let Some(text) = text(model) else {
            return Ok(None);
        };
        let Some(catalog) = self.catalog(model, &text)? else {
            return Ok(None);
        };
        let inputs = self.world.project.inputs.get(&model.name);
        let inputs = inputs.into_iter().flatten();
        let inputs: BTreeMap<_, _> = inputs.map(|table| (table.clone(), 0)).collect();
        let statement = Statement {
            order: make::order(model, inputs.len()),
            watermarks: make::watermarks(model, &inputs),
            ..Statement::new(text.as_str())
        };
        match self.world.query.describe(&statement, &catalog).await {
            Ok(schema) => {
                let has = |name: &str| {
                    let mut fields = schema.fields().iter();
                    fields.any(|field| field.name().eq_ignore_ascii_case(name))
                };
                let config = &model.config;
                let keys = config
                    .unique_key
                    .iter()
                    .map(|key| ("unique_key", key.clone()));
                let cdc = config.cdc.iter().flat_map(|cdc| {
                    [
                        ("cdc_op", cdc.op.clone()),
                        ("cdc_seq", events::sequence(cdc)),
                    ]
                });
                let missing = keys.chain(cdc).filter(|(_, name)| !has(name));
                let mut findings: Vec<_> = missing
                    .map(|(setting, name)| {
                        let code = match setting {
                            "unique_key" => "unknown_key_column",
                            _ => "unknown_cdc_column",
                        };
                        let message =
                            format!("`{setting}` names `{name}`, which is no column of the query");
                        finding(model, code, message, (1, 1))
                    })
                    .collect();
                findings.extend(self.keys(model, &text, &catalog).await?);
                findings.extend(unordered(model, &schema));
                if make::is_foreign(model, inputs.len(), &schema) {
                    let message = make::FOREIGN_SEQUENCE.to_owned();
                    findings.push(finding(model, "sequence_foreign", message, (1, 1)));
                }
                if !pins::is_view(model)
                    && let Err(error) = self.world.tables.accepts(&model.name, &schema)
                {
                    let message = reason(&error);
                    let at = place(model, message.split('`').nth(1).unwrap_or_default());
                    findings.push(finding(model, "columns_invalid", message, at));
                }
                findings.extend(self.assertions(model).await?);
                Ok(Some(findings))
            }
            Err(error) if error.kind == Kind::Invalid || error.kind == Kind::NotFound => {
                let message = reason(&error);
                let at = place(model, &message);
                let mut findings = vec![finding(model, "query", message, at)];
                // What cannot be asked of any rows is told with it; the others need a query that can be planned.
                findings.extend(model.asserts.iter().filter_map(|assert| {
                    let error = checks::Check::read(&model.name, assert).err()?;
                    let why = ports::error::chain(&error);
                    Some(finding(model, "assert_invalid", why, (assert.line, 1)))
                }));
                Ok(Some(findings))
            }
            Err(error) => Err(error),
        }
    }

    /// That an auto model is computed anew each time, where only the columns of its inputs tell.
    async fn keys(&self, model: &Model, text: &str, catalog: &Catalog) -> Result<Option<Finding>> {
        let Some(Ok(trace)) = self.world.project.traced(model) else {
            return Ok(None);
        };
        let why = auto::trouble(self.world, &trace, text, catalog).await?;
        Ok(why.map(|why| {
            let message = format!("every refresh recomputes the whole table: {why}");
            Finding {
                severity: Severity::Warning,
                ..finding(model, "auto_untraceable", message, (1, 1))
            }
        }))
    }

    /// Assertions that cannot be asked of the rows of the query.
    async fn assertions(&self, model: &Model) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for assert in &model.asserts {
            let bad = |message| finding(model, "assert_invalid", message, (assert.line, 1));
            let statement = match checks::Check::read(&model.name, assert) {
                Ok(check) => check.statement(&model.name),
                Err(error) => {
                    findings.push(bad(ports::error::chain(&error)));
                    continue;
                }
            };
            // A subquery of it may name what no statement may read.
            let tables = match pins::tables(&model.file, &statement) {
                Ok(tables) => tables,
                Err(error) => {
                    let why = ports::error::chain(&error);
                    findings.push(bad(format!("`{}`: {why}", assert.expression)));
                    continue;
                }
            };
            if let Some(table) = self.absent(&tables) {
                let why = ports::error::chain(&pins::missing(&self.world.project, table));
                findings.push(bad(format!("`{}`: {why}", assert.expression)));
                continue;
            }
            // The model stands for what its query would give, whatever rows it has.
            let reader = self.catalog_of(&statement, &model.file, Some(model))?;
            let Some(catalog) = reader else { continue };
            let statement = Statement::new(statement);
            match self.world.query.describe(&statement, &catalog).await {
                Ok(_) => {}
                Err(error) if matches!(error.kind, Kind::Invalid | Kind::NotFound) => {
                    let why = reason(&error);
                    findings.push(bad(format!("`{}`: {why}", assert.expression)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(findings)
    }

    /// The first table that is not there and that nothing makes: what lands, is quarantined or is deleted makes tables.
    fn absent<'t>(&self, tables: &'t [TableName]) -> Option<&'t TableName> {
        let project = &self.world.project;
        let comes = |table: &TableName| {
            table.is_landing() || table.schema() == QUARANTINE || table.name().ends_with(TOMBSTONES)
        };
        tables.iter().find(|table| {
            !project.models.contains_key(*table)
                && !self.heads.contains_key(*table)
                && !comes(table)
        })
    }

    /// Promises about landing tables that nothing has landed in and no model reads: they would never be kept.
    fn sources(&self, model: &Model) -> Vec<Finding> {
        let models = &self.world.project.models;
        let is_read = |table: &TableName| models.values().any(|model| model.reads.contains(table));
        let absent =
            promised(model).filter(|table| !self.heads.contains_key(table) && !is_read(table));
        let told = absent.map(|table| {
            let near = self.nearest(&table);
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            let message = format!(
                "@source_freshness names `{table}`, which nothing has landed in and no model reads{near}"
            );
            Finding {
                severity: Severity::Warning,
                ..finding(model, "missing_source", message, (1, 1))
            }
        });
        told.collect()
    }

    /// The landing table whose name is nearest to one that is not there.
    fn nearest(&self, table: &TableName) -> Option<String> {
        let landed = self.heads.keys().filter(|known| known.is_landing());
        let names: BTreeSet<String> = landed.map(ToString::to_string).collect();
        let near = domain::name::nearest(&table.to_string(), names.iter().map(String::as_str));
        near.map(str::to_owned)
    }

    /// What the text reads; none when a landing table is not there yet, or a model is read in a way that needs its rows.
    fn catalog(&self, model: &Model, text: &str) -> Result<Option<Catalog>> {
        // A model that reads itself begins with nothing, which no plan can know the columns of.
        let named = pins::tables(&model.file, text)?;
        if named.contains(&model.name) && !self.heads.contains_key(&model.name) {
            return Ok(None);
        }
        self.catalog_of(text, &model.file, None)
    }

    /// What a text reads, with a model that is looked through whether it has rows or not.
    fn catalog_of(
        &self,
        text: &str,
        file: &str,
        through: Option<&Model>,
    ) -> Result<Option<Catalog>> {
        let project = &self.world.project;
        let mut catalog = Catalog::default();
        let mut open = pins::tables(file, text)?;
        while let Some(name) = open.pop() {
            if catalog.tables.contains_key(&name) || catalog.views.contains_key(&name) {
                continue;
            }
            let head = self.heads.get(&name);
            match project.models.get(&name) {
                Some(read)
                    if pins::is_view(read)
                        || head.is_none()
                        || through.is_some_and(|through| through.name == name) =>
                {
                    let Some(text) = self::text(read) else {
                        return Ok(None);
                    };
                    open.extend(pins::tables(&read.file, &text)?);
                    catalog.views.insert(name, text);
                }
                _ if head.is_none() => return Ok(None),
                _ => {
                    let pin = pins::pin(project, &name, head, None)?;
                    catalog.tables.insert(name, pin);
                }
            }
        }
        Ok(Some(catalog))
    }
}

/// The text of a model at the beginning of all watermarks; none when it reads a change feed, which is a table only while
/// a refresh runs, or itself, or when it cannot be read, which validation says.
fn text(model: &Model) -> Option<String> {
    let placeholders = |text: &str| sql::placeholders(text).ok();
    let mut found = placeholders(&model.sql)?;
    let filtered = model.config.materialized == Materialized::Incremental && !model.is_auto();
    if let (Some(filter), true) = (&model.config.filter, filtered) {
        found.extend(placeholders(filter)?);
    }
    let plain = |p: &Placeholder| matches!(p, Placeholder::Watermark | Placeholder::WatermarkOf(_));
    if !found.iter().all(plain) {
        return None;
    }
    let watermarks = found.iter().filter_map(|p| match p {
        Placeholder::WatermarkOf(table) => Some((table.clone(), 0)),
        _ => None,
    });
    let bindings = Bindings {
        this: &model.name,
        watermark: Some(0),
        watermarks: watermarks.collect(),
        changes: None,
    };
    sql::text(model, &bindings, filtered).ok()
}

/// Why a statement cannot be planned, or its rows not be stored: the model is named by the finding, and its query need not
/// be told again.
fn reason(error: &ports::Error) -> String {
    let message = ports::error::chain(error);
    let known = ["plan statement", "store rows of"];
    match message.split_once(": ") {
        Some((told, why)) if known.iter().any(|known| told.starts_with(known)) => why.to_owned(),
        _ => message,
    }
}

/// Where in the file the first word is that the message quotes and the query has; the query's first line otherwise.
fn place(model: &Model, message: &str) -> (usize, usize) {
    let words = message.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'));
    let candidates = words
        .map(|word| word.trim_matches('.'))
        .map(|word| word.rsplit('.').next().unwrap_or(word))
        .filter(|word| word.len() > 1 && !COMMON.contains(&word.to_ascii_lowercase().as_str()));
    for word in candidates {
        for (line, text) in model.sql.lines().enumerate() {
            let found = text.match_indices(word).find(|(at, _)| {
                let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
                !inside(text[..*at].chars().next_back())
                    && !inside(text[at + word.len()..].chars().next())
            });
            if let Some((at, _)) = found {
                return (model.sql_line + line, text[..at].chars().count() + 1);
            }
        }
    }
    (model.sql_line.max(1), 1)
}

/// Words of messages that queries have too.
const COMMON: [&str; 24] = [
    "no",
    "field",
    "named",
    "valid",
    "fields",
    "are",
    "error",
    "schema",
    "plan",
    "planning",
    "during",
    "function",
    "invalid",
    "type",
    "coercion",
    "column",
    "table",
    "expression",
    "select",
    "from",
    "where",
    "is",
    "not",
    "by",
];

fn finding(
    model: &Model,
    code: &'static str,
    message: String,
    (line, column): (usize, usize),
) -> Finding {
    Finding {
        model: model.name.to_string(),
        severity: Severity::Error,
        code,
        message,
        file: model.file.clone(),
        line,
        column,
    }
}
