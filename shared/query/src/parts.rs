//! A scan of parts in order: rows in memory and parquet files, with sequences counted where a file does not hold them.
//!
//! One partition, so that rows of a landing table come in sequence order when nothing sorts.

use std::{fmt, ops::Range, sync::Arc};

use datafusion::{
    arrow::{
        compute::SortOptions,
        datatypes::{Schema, SchemaRef},
    },
    common::{
        ColumnStatistics, Result, Statistics, stats::Precision, tree_node::TreeNodeRecursion,
    },
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::{EquivalenceProperties, PhysicalSortExpr, expressions::col},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
        execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions},
        statistics::StatisticsArgs,
        stream::RecordBatchStreamAdapter,
    },
};
use domain::SEQUENCE;
use futures::{StreamExt, TryStreamExt, stream};
use ports::{
    feed::Picked,
    tables::{FilePart, Part},
};

use crate::{bounds, footers::Footers, open::Shape, rows};

/// Files opened ahead of the one being read.
const AHEAD: usize = 2;

/// Sequences that are read: above `after`, through `through`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) after: u64,
    pub(crate) through: u64,
}

impl Window {
    /// Everything, rows without a sequence included.
    pub(crate) const ALL: Self = Self {
        after: 0,
        through: u64::MAX,
    };

    /// Row numbers of a file that lie in the window. Files that do not count sequences are read whole.
    pub(crate) fn rows(self, file: &FilePart) -> Range<u64> {
        let Some(first) = file.first_sequence else {
            return 0..file.rows;
        };
        let start = (self.after + 1).saturating_sub(first).min(file.rows);
        let end = self
            .through
            .saturating_add(1)
            .saturating_sub(first)
            .min(file.rows);
        start..end.max(start)
    }
}

/// A scan to be.
pub(crate) struct Parts {
    /// Columns of the table.
    pub(crate) schema: SchemaRef,
    /// Columns wanted; all when none.
    pub(crate) projection: Option<Vec<usize>>,
    /// The parts, in order.
    pub(crate) parts: Vec<Part>,
    /// The sequences wanted.
    pub(crate) window: Window,
    /// Whether the parts' rows are in the order of their sequences.
    pub(crate) ordered: bool,
    /// Opens files.
    pub(crate) footers: Arc<Footers>,
}

impl Parts {
    /// The leaf of a plan that reads them.
    pub(crate) fn plan(self) -> Result<Arc<dyn ExecutionPlan>> {
        let output = match &self.projection {
            Some(columns) => Arc::new(self.schema.project(columns)?),
            None => Arc::clone(&self.schema),
        };
        let parts = self
            .parts
            .into_iter()
            .filter_map(|part| cut(part, self.window))
            .collect();
        leaf(output, parts, self.ordered, self.footers)
    }
}

/// The leaf of a plan that reads some rows of parts, in order.
pub(crate) fn picked(
    schema: &SchemaRef,
    columns: Vec<usize>,
    picked: Vec<Picked>,
    ordered: bool,
    footers: Arc<Footers>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let slices = picked
        .into_iter()
        .filter_map(|Picked { part, rows }| match (part, rows) {
            (Part::File(file), Some(rows)) => {
                let slice = Slice::File(file, rows::runs(rows.iter()));
                (slice.rows() > 0).then_some(slice)
            }
            (part, _) => cut(part, Window::ALL),
        });
    let output = Arc::new(schema.project(&columns)?);
    leaf(output, slices.collect(), ordered, footers)
}

fn leaf(
    output: SchemaRef,
    parts: Vec<Slice>,
    ordered: bool,
    footers: Arc<Footers>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut equivalences = EquivalenceProperties::new(Arc::clone(&output));
    if ordered && output.column_with_name(SEQUENCE).is_some() {
        let options = SortOptions {
            descending: false,
            nulls_first: false,
        };
        equivalences.add_ordering([PhysicalSortExpr::new(col(SEQUENCE, &output)?, options)]);
    }
    let properties = PlanProperties::new(
        equivalences,
        Partitioning::UnknownPartitioning(1),
        EmissionType::Incremental,
        Boundedness::Bounded,
    );
    let shape = Shape { output, footers };
    Ok(Arc::new(PartsExec {
        shape,
        parts,
        properties: Arc::new(properties),
    }))
}

/// A part with the rows of it that are read.
#[derive(Clone, Debug)]
pub(crate) enum Slice {
    /// Rows of a batch.
    Memory(datafusion::arrow::array::RecordBatch),
    /// Row numbers of a file.
    File(Arc<FilePart>, Vec<Range<u64>>),
}

impl Slice {
    fn rows(&self) -> u64 {
        match self {
            Self::Memory(batch) => batch.num_rows() as u64,
            Self::File(_, ranges) => ranges.iter().map(|range| range.end - range.start).sum(),
        }
    }
}

fn cut(part: Part, window: Window) -> Option<Slice> {
    let slice = match part {
        Part::Memory(batch) => {
            let range = crate::open::rows_within(&batch, window);
            Slice::Memory(batch.slice(range.start, range.len()))
        }
        Part::File(file) => {
            let ranges = rows::live(&file, window.rows(&file));
            Slice::File(file, ranges)
        }
    };
    (slice.rows() > 0).then_some(slice)
}

struct PartsExec {
    shape: Shape,
    parts: Vec<Slice>,
    properties: Arc<PlanProperties>,
}

impl PartsExec {
    fn rows(&self) -> u64 {
        self.parts.iter().map(Slice::rows).sum()
    }
}

impl fmt::Debug for PartsExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartsExec")
            .field("parts", &self.parts.len())
            .finish_non_exhaustive()
    }
}

impl DisplayAs for PartsExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<&str> = self
            .shape
            .output
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        let (parts, rows) = (self.parts.len(), self.rows());
        write!(
            f,
            "PartsExec: parts={parts}, rows={rows}, columns=[{}]",
            columns.join(", ")
        )
    }
}

impl ExecutionPlan for PartsExec {
    fn name(&self) -> &'static str {
        "PartsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let shape = self.shape.clone();
        let batch_rows = context.session_config().batch_size();
        let stream = stream::iter(self.parts.clone())
            .map(move |slice| shape.clone().open(slice, batch_rows))
            .buffered(AHEAD)
            .try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.shape.output),
            stream,
        )))
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let schema: &Schema = &self.shape.output;
        Ok(Arc::new(Statistics {
            num_rows: bounds::exact(self.rows()),
            total_byte_size: Precision::Absent,
            column_statistics: vec![ColumnStatistics::new_unknown(); schema.fields().len()],
        }))
    }
}
