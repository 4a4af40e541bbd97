//! What is known of a file without opening it, in DataFusion's terms: statistics, and which files a filter rules out.
//!
//! Bounds are only bounds (a table format may shorten text), so they are given as inexact: good for plans and for
//! leaving files out, never for an answer. Floating-point columns count as unknown because of NaN (see `footers`).

use std::{collections::HashSet, sync::Arc};

use datafusion::{
    arrow::{
        array::{ArrayRef, BooleanArray, UInt64Array, new_null_array},
        compute::{cast, concat},
        datatypes::{DataType, Schema, SchemaRef},
    },
    catalog::Session,
    common::{
        Column, ColumnStatistics, DFSchema, Result, ScalarValue, Statistics,
        pruning::PruningStatistics, stats::Precision,
    },
    logical_expr::{Expr, utils::conjunction},
    physical_optimizer::pruning::PruningPredicateBuilder,
};
use ports::tables::{Bounds, FilePart};

/// The files that may hold rows the filters select.
pub(crate) fn prune(
    files: Vec<Arc<FilePart>>,
    filters: &[Expr],
    schema: &SchemaRef,
    session: &dyn Session,
) -> Result<Vec<Arc<FilePart>>> {
    let Some(filter) = conjunction(filters.iter().cloned()) else {
        return Ok(files);
    };
    let known = DFSchema::try_from(Arc::clone(schema))?;
    // A filter that cannot be expressed here is applied to the rows later: every file stays.
    let Ok(filter) = session.create_physical_expr(filter, &known) else {
        return Ok(files);
    };
    let builder = PruningPredicateBuilder::new().with_file_schema(Arc::clone(schema));
    let Some(predicate) = builder.build(filter) else {
        return Ok(files);
    };
    let kept = predicate.prune(&Known {
        files: &files,
        schema,
    })?;
    Ok(files
        .into_iter()
        .zip(kept)
        .filter_map(|(file, kept)| kept.then_some(file))
        .collect())
}

/// Rows of a file that are not deleted.
pub(crate) fn live_rows(file: &FilePart) -> u64 {
    file.rows
        .saturating_sub(file.deleted.as_ref().map_or(0, |deleted| deleted.len()))
}

/// Statistics of one file over the table's columns.
pub(crate) fn statistics(file: &FilePart, schema: &Schema) -> Statistics {
    let has_deletes = file
        .deleted
        .as_ref()
        .is_some_and(|deleted| !deleted.is_empty());
    let columns = schema.fields().iter().map(|field| {
        let mut column = ColumnStatistics::new_unknown();
        let Some(bounds) = usable(file, field.name(), field.data_type()) else {
            return column;
        };
        if let Some(nulls) = bounds.nulls.and_then(|nulls| usize::try_from(nulls).ok()) {
            column.null_count = match has_deletes {
                true => Precision::Inexact(nulls),
                false => Precision::Exact(nulls),
            };
        }
        let value = |bound: &Option<ArrayRef>| {
            let array = cast(bound.as_ref()?, field.data_type()).ok()?;
            ScalarValue::try_from_array(&array, 0).ok()
        };
        column.min_value = value(&bounds.min).map_or(Precision::Absent, Precision::Inexact);
        column.max_value = value(&bounds.max).map_or(Precision::Absent, Precision::Inexact);
        column
    });
    Statistics {
        num_rows: exact(live_rows(file)),
        total_byte_size: Precision::Absent,
        column_statistics: columns.collect(),
    }
}

/// A row count that is certain.
pub(crate) fn exact(rows: u64) -> Precision<usize> {
    usize::try_from(rows).map_or(Precision::Absent, Precision::Exact)
}

fn usable<'a>(file: &'a FilePart, name: &str, kind: &DataType) -> Option<&'a Bounds> {
    if kind.is_floating() {
        None
    } else {
        file.bounds.get(name)
    }
}

struct Known<'a> {
    files: &'a [Arc<FilePart>],
    schema: &'a Schema,
}

impl Known<'_> {
    fn values(
        &self,
        column: &Column,
        side: impl Fn(&Bounds) -> Option<&ArrayRef>,
    ) -> Option<ArrayRef> {
        let kind = self.schema.field_with_name(column.name()).ok()?.data_type();
        let bounds = |file| usable(file, column.name(), kind).and_then(&side);
        if !self.files.iter().any(|file| bounds(file).is_some()) {
            return None;
        }
        let arrays: Vec<ArrayRef> = self
            .files
            .iter()
            .map(|file| match bounds(file).map(|bound| cast(bound, kind)) {
                Some(Ok(array)) if array.len() == 1 => array,
                _ => new_null_array(kind, 1),
            })
            .collect();
        concat(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>()).ok()
    }
}

impl PruningStatistics for Known<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.values(column, |bounds| bounds.min.as_ref())
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.values(column, |bounds| bounds.max.as_ref())
    }

    fn num_containers(&self) -> usize {
        self.files.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let kind = self.schema.field_with_name(column.name()).ok()?.data_type();
        let nulls = |file: &Arc<FilePart>| usable(file, column.name(), kind)?.nulls;
        Some(Arc::new(
            self.files.iter().map(nulls).collect::<UInt64Array>(),
        ))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(
            self.files
                .iter()
                .map(|file| Some(file.rows))
                .collect::<UInt64Array>(),
        ))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
