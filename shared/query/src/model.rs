//! A model table: parquet files of one snapshot, scanned by DataFusion's own reader.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::{
    arrow::datatypes::SchemaRef,
    catalog::{Session, TableProvider},
    common::{DataFusionError, Result, Statistics},
    config::TableParquetOptions,
    datasource::{
        TableType,
        listing::PartitionedFile,
        physical_plan::{
            FileGroup, FileScanConfigBuilder, ParquetSource, parquet::ParquetRowSelection,
        },
        source::DataSourceExec,
    },
    execution::object_store::ObjectStoreUrl,
    logical_expr::{Expr, TableProviderFilterPushDown},
    physical_plan::ExecutionPlan,
};
use object_store::path::Path;
use ports::{
    Tables,
    tables::{FilePart, Part, Pin},
};

use crate::{
    bounds,
    footers::{Footers, Opener},
    parts::{Parts, Window},
    rows,
};

/// What every table reads from.
#[derive(Debug)]
pub(crate) struct Lake {
    pub(crate) tables: Arc<dyn Tables>,
    pub(crate) footers: Arc<Footers>,
}

/// A pinned model table.
#[derive(Debug)]
pub(crate) struct ModelTable {
    pub(crate) pin: Pin,
    pub(crate) schema: SchemaRef,
    pub(crate) lake: Arc<Lake>,
}

#[async_trait]
impl TableProvider for ModelTable {
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
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let scan = self
            .lake
            .tables
            .scan(&self.pin, 0)
            .await
            .map_err(external)?;
        parts(
            &self.lake,
            &self.schema,
            scan.parts,
            session,
            projection,
            filters,
            limit,
        )
    }
}

/// The scan of parts in no order: files that filters leave over, or all when some are in memory.
pub(crate) fn parts(
    lake: &Lake,
    schema: &SchemaRef,
    parts: Vec<Part>,
    session: &dyn Session,
    projection: Option<&Vec<usize>>,
    filters: &[Expr],
    limit: Option<usize>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut files = Vec::with_capacity(parts.len());
    for part in &parts {
        match part {
            Part::File(file) => files.push(Arc::clone(file)),
            Part::Memory(_) => {
                let parts = Parts {
                    schema: Arc::clone(schema),
                    projection: projection.cloned(),
                    parts,
                    window: Window::ALL,
                    ordered: false,
                    footers: Arc::clone(&lake.footers),
                };
                return parts.plan();
            }
        }
    }
    let files = bounds::prune(files, filters, schema, session)?;
    self::files(lake, schema, files, session, projection, limit)
}

/// The scan of whole files of a model table.
pub(crate) fn files(
    lake: &Lake,
    schema: &SchemaRef,
    files: Vec<Arc<FilePart>>,
    session: &dyn Session,
    projection: Option<&Vec<usize>>,
    limit: Option<usize>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let partitions = session.config().target_partitions().min(files.len()).max(1);
    let mut groups = vec![(0_u64, Vec::new()); partitions];
    let mut statistics = Vec::with_capacity(files.len());
    for file in files {
        let known = Arc::new(bounds::statistics(&file, schema));
        statistics.push(Arc::clone(&known));
        // Each file to the group with the fewest bytes so far.
        if let Some(group) = groups.iter_mut().min_by_key(|(bytes, _)| *bytes) {
            group.0 += file.size;
            group.1.push(partitioned(&file)?.with_statistics(known));
        }
    }
    let total = match statistics.is_empty() {
        true => Statistics {
            num_rows: bounds::exact(0),
            ..Statistics::new_unknown(schema)
        },
        false => Statistics::try_merge_iter(statistics.iter().map(AsRef::as_ref), schema)?,
    };
    let options = TableParquetOptions {
        global: session.config_options().execution.parquet.clone(),
        ..TableParquetOptions::default()
    };
    let source = ParquetSource::new(Arc::clone(schema))
        .with_table_parquet_options(options)
        .with_parquet_file_reader_factory(Arc::new(Opener(Arc::clone(&lake.footers))));
    let config = FileScanConfigBuilder::new(warehouse()?, Arc::new(source))
        .with_file_groups(
            groups
                .into_iter()
                .map(|(_, files)| FileGroup::new(files))
                .collect(),
        )
        .with_statistics(total)
        .with_projection_indices(projection.cloned())?
        .with_limit(limit)
        .build();
    Ok(DataSourceExec::from_data_source(config))
}

fn partitioned(file: &FilePart) -> Result<PartitionedFile> {
    let mut partitioned = PartitionedFile::new(String::new(), file.size);
    partitioned.object_meta.location = path(file)?;
    Ok(match &file.deleted {
        Some(deleted) if !deleted.is_empty() => {
            let live = rows::live(file, 0..file.rows);
            partitioned.with_extension(ParquetRowSelection::new(rows::selection(&live, file.rows)))
        }
        _ => partitioned,
    })
}

/// The name our objects go by within DataFusion: the only store there is.
pub(crate) fn warehouse() -> Result<ObjectStoreUrl> {
    ObjectStoreUrl::parse("warehouse://objects/")
}

/// The object of a file.
pub(crate) fn path(file: &FilePart) -> Result<Path> {
    Path::parse(&file.path).map_err(external)
}

/// A port's error on its way through DataFusion; `failure` takes it out again.
pub(crate) fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
