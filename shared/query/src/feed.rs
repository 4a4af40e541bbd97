//! A change feed as a table: the columns of the table it is of, and what happened to each row.
//!
//! Rows of one kind are one scan with a constant beside it; whole files go through the scan of model tables, with its
//! partitions and statistics, anything else is read part by part.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::{
    arrow::datatypes::{DataType, Field, Schema, SchemaRef},
    catalog::{Session, TableProvider},
    common::Result,
    datasource::TableType,
    logical_expr::{Expr, TableProviderFilterPushDown},
    physical_expr::expressions::{Column, lit},
    physical_plan::{
        ExecutionPlan, PhysicalExpr, empty::EmptyExec, projection::ProjectionExec, union::UnionExec,
    },
};
use domain::CHANGE;
use ports::{
    feed::{Feed, Picked, RowChange},
    tables::{FilePart, Part},
};

use crate::{
    bounds,
    model::{self, Lake},
    parts,
};

/// A change feed.
#[derive(Debug)]
pub(crate) struct FeedTable {
    feed: Arc<Feed>,
    schema: SchemaRef,
    lake: Arc<Lake>,
}

impl FeedTable {
    /// A feed's table; none when the table it is of has a column named like the feed's own.
    pub(crate) fn new(feed: Arc<Feed>, lake: Arc<Lake>) -> Option<Self> {
        let fields = feed.schema.fields();
        if fields
            .iter()
            .any(|field| field.name().eq_ignore_ascii_case(CHANGE))
        {
            return None;
        }
        let change = Arc::new(Field::new(CHANGE, DataType::Utf8, false));
        let fields: Vec<_> = fields.iter().cloned().chain([change]).collect();
        let schema = Arc::new(Schema::new(fields));
        Some(Self { feed, schema, lake })
    }

    /// Rows of one kind in some columns of the table.
    fn rows(
        &self,
        session: &dyn Session,
        picked: Vec<Picked>,
        columns: Vec<usize>,
        filters: &[Expr],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = &self.feed.schema;
        let whole: Option<Vec<Arc<FilePart>>> = picked.iter().map(whole).collect();
        match whole {
            Some(files) => {
                let files = bounds::prune(files, filters, schema, session)?;
                model::files(&self.lake, schema, files, session, Some(&columns), None)
            }
            None => {
                let footers = Arc::clone(&self.lake.footers);
                parts::picked(schema, columns, picked, self.feed.in_sequence, footers)
            }
        }
    }
}

/// A file of a model table of which all rows are read.
fn whole(picked: &Picked) -> Option<Arc<FilePart>> {
    match &picked.part {
        Part::File(file) if picked.rows.is_none() && file.first_sequence.is_none() => {
            Some(Arc::clone(file))
        }
        Part::File(_) | Part::Memory(_) => None,
    }
}

#[async_trait]
impl TableProvider for FeedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let change = self.feed.schema.fields().len();
        let wanted = match projection {
            Some(wanted) => wanted.clone(),
            None => (0..=change).collect(),
        };
        let columns: Vec<usize> = wanted.iter().copied().filter(|at| *at != change).collect();
        let of_table = |filter: &&Expr| filter.column_refs().iter().all(|c| c.name != CHANGE);
        let filters: Vec<Expr> = filters.iter().filter(of_table).cloned().collect();
        let mut plans = Vec::new();
        for kind in RowChange::ALL {
            let picked: Vec<Picked> = self
                .feed
                .parts
                .iter()
                .filter(|(of, _)| *of == kind)
                .map(|(_, picked)| picked.clone())
                .collect();
            if !picked.is_empty() {
                let rows = self.rows(session, picked, columns.clone(), &filters)?;
                plans.push(labelled(rows, &wanted, change, kind)?);
            }
        }
        if plans.is_empty() {
            let schema = Arc::new(self.schema.project(&wanted)?);
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        UnionExec::try_new(plans)
    }
}

/// Puts the word for what happened where it is wanted.
fn labelled(
    rows: Arc<dyn ExecutionPlan>,
    wanted: &[usize],
    change: usize,
    kind: RowChange,
) -> Result<Arc<dyn ExecutionPlan>> {
    if !wanted.contains(&change) {
        return Ok(rows);
    }
    let schema = rows.schema();
    let mut columns = schema.fields().iter().enumerate();
    let mut outputs: Vec<(Arc<dyn PhysicalExpr>, String)> = Vec::with_capacity(wanted.len());
    for at in wanted {
        if *at == change {
            outputs.push((lit(kind.word()), CHANGE.to_owned()));
        } else if let Some((place, field)) = columns.next() {
            outputs.push((
                Arc::new(Column::new(field.name(), place)),
                field.name().clone(),
            ));
        }
    }
    Ok(Arc::new(ProjectionExec::try_new(outputs, rows)?))
}
