//! The entry that a statement is over: one table, named `this`.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::{
    arrow::datatypes::SchemaRef,
    catalog::{Session, TableProvider},
    common::Result,
    datasource::TableType,
    logical_expr::{Expr, TableProviderFilterPushDown},
    physical_plan::ExecutionPlan,
};
use ports::{query::ROW, tables::Scan};

use crate::{
    model::{self, Lake},
    parts::{Parts, Window},
};

/// An entry's rows.
#[derive(Debug)]
pub(crate) struct EntryTable {
    pub(crate) scan: Scan,
    pub(crate) lake: Arc<Lake>,
}

#[async_trait]
impl TableProvider for EntryTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.scan.schema)
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
        let parts = self.scan.parts.clone();
        let schema = &self.scan.schema;
        if schema.column_with_name(ROW).is_some() {
            // Rows that are numbered as they are read are read in order.
            let parts = Parts {
                schema: Arc::clone(schema),
                projection: projection.cloned(),
                parts,
                window: Window::ALL,
                ordered: false,
                footers: Arc::clone(&self.lake.footers),
            };
            return parts.plan();
        }
        model::parts(
            &self.lake, schema, parts, session, projection, filters, limit,
        )
    }
}
