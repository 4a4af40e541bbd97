//! SQL type words that mean something else here than in DataFusion.

use std::sync::Arc;

use datafusion::{
    arrow::datatypes::{DataType, Field, FieldRef, TimeUnit},
    common::Result,
    logical_expr::planner::TypePlanner,
};
use sqlparser::ast::{DataType as Word, TimezoneInfo};

/// `TIMESTAMP` is microseconds without a zone, `TIMESTAMPTZ` microseconds in UTC: what tables store.
#[derive(Debug)]
pub(crate) struct Types;

/// The zone of every `TIMESTAMPTZ`.
pub(crate) const UTC: &str = "UTC";

impl TypePlanner for Types {
    fn plan_type_field(&self, word: &Word) -> Result<Option<FieldRef>> {
        let kind = match word {
            Word::Timestamp(None, zone) => DataType::Timestamp(
                TimeUnit::Microsecond,
                match zone {
                    TimezoneInfo::None | TimezoneInfo::WithoutTimeZone => None,
                    TimezoneInfo::WithTimeZone | TimezoneInfo::Tz => Some(UTC.into()),
                },
            ),
            Word::Datetime(None) => DataType::Timestamp(TimeUnit::Microsecond, None),
            Word::JSON => DataType::Utf8,
            _ => return Ok(None),
        };
        Ok(Some(Arc::new(Field::new("", kind, true))))
    }
}
