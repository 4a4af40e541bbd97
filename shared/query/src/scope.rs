//! What the expressions of a step of a plan can name.

use datafusion::{
    common::{DFSchema, Result},
    logical_expr::{LogicalPlan, utils::merge_schema},
};

/// The columns of its inputs, and of the table where it reads one: filters that went down to it name these.
pub(crate) fn columns(plan: &LogicalPlan) -> Result<DFSchema> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = plan {
        let columns = scan.source.schema();
        schema.merge(&DFSchema::try_from_qualified_schema(
            scan.table_name.clone(),
            &columns,
        )?);
    }
    Ok(schema)
}
