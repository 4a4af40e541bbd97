//! What the statistics of a table's files say of its columns, without reading a row.

use std::sync::Arc;

use arrow::{
    array::ArrayRef,
    compute::{SortOptions, concat, sort_to_indices},
    datatypes::Field,
    util::display::array_value_to_string,
};
use domain::items::ColumnProfile;
use ports::{
    Error, Kind, Result,
    tables::{Bounds, FilePart, Part},
};

use super::cut;

/// Every column as far as all files know it. Bounds hold, but need not be values: deleted rows are in them, and long texts
/// are cut.
pub(super) fn columns(fields: &[Arc<Field>], parts: &[Part]) -> Result<Vec<ColumnProfile>> {
    let file = |part: &Part| match part {
        Part::File(file) => Some(Arc::clone(file)),
        Part::Memory(_) => None,
    };
    let files: Option<Vec<Arc<FilePart>>> = parts.iter().map(file).collect();
    // Rows in memory have no statistics.
    let files = files.unwrap_or_default();
    fields.iter().map(|field| column(field, &files)).collect()
}

fn column(field: &Field, files: &[Arc<FilePart>]) -> Result<ColumnProfile> {
    let bounds: Option<Vec<&Bounds>> = files
        .iter()
        .map(|file| file.bounds.get(field.name()))
        .collect();
    let bounds = bounds.unwrap_or_default();
    let whole = files.iter().all(|file| file.deleted.is_none());
    let nulls: Option<u64> = bounds.iter().map(|bounds| bounds.nulls).sum();
    let end = |pick: fn(&Bounds) -> Option<ArrayRef>, descending| {
        let ends: Option<Vec<ArrayRef>> = bounds.iter().map(|bounds| pick(bounds)).collect();
        outermost(&ends.unwrap_or_default(), descending)
    };
    Ok(ColumnProfile {
        name: field.name().clone(),
        kind: ports::columns::word(field.data_type()),
        nulls: nulls.filter(|_| whole && !bounds.is_empty()),
        min: end(|bounds| bounds.min.clone(), false)?,
        max: end(|bounds| bounds.max.clone(), true)?,
        distinct: None,
    })
}

/// The first of values in order; none of none.
fn outermost(ends: &[ArrayRef], descending: bool) -> Result<Option<String>> {
    let corrupt = |error| Error::new(Kind::Corrupt, "compare", "statistics").because(error);
    let ends: Vec<_> = ends.iter().map(AsRef::as_ref).collect();
    if ends.is_empty() {
        return Ok(None);
    }
    let all = concat(&ends).map_err(corrupt)?;
    let options = SortOptions {
        descending,
        nulls_first: false,
    };
    let order = sort_to_indices(&all, Some(options), Some(1)).map_err(corrupt)?;
    let first = order.values().first().copied().unwrap_or(0) as usize;
    let text = array_value_to_string(&all, first).map_err(corrupt)?;
    Ok(Some(cut(&text)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::{array::Int64Array, datatypes::DataType};

    use super::*;

    fn file(min: Option<i64>, max: Option<i64>, nulls: Option<u64>) -> Part {
        let value =
            |value: Option<i64>| value.map(|v| Arc::new(Int64Array::from(vec![v])) as ArrayRef);
        let bounds = Bounds {
            min: value(min),
            max: value(max),
            nulls,
        };
        Part::File(Arc::new(FilePart {
            path: "f.parquet".to_owned(),
            size: 1,
            rows: 10,
            first_sequence: None,
            deleted: None,
            bounds: BTreeMap::from([("x".to_owned(), bounds)]),
        }))
    }

    fn check(parts: &[Part], min: Option<&str>, max: Option<&str>, nulls: Option<u64>) {
        let fields = [Arc::new(Field::new("x", DataType::Int64, true))];
        let found = columns(&fields, parts).expect("statistics");
        let found = (
            found[0].min.as_deref(),
            found[0].max.as_deref(),
            found[0].nulls,
        );
        assert_eq!(found, (min, max, nulls));
    }

    #[test]
    fn files_are_taken_together() {
        let first = || file(Some(9), Some(10), Some(1));
        check(
            &[first(), file(Some(-3), Some(4), Some(2))],
            Some("-3"),
            Some("10"),
            Some(3),
        );
        // What one file does not know nobody knows.
        check(&[first(), file(Some(1), None, None)], Some("1"), None, None);
        check(&[], None, None, None);
    }
}
