//! Types that have no word of their own: kept exactly, or refused with the column's name.

use arrow::{
    array::{
        DictionaryArray, Float16Array, Float64Array, IntervalMonthDayNanoArray, ListArray,
        TimestampNanosecondArray, UInt64Array,
    },
    compute::cast,
    datatypes::{DataType, Float64Type, Int32Type, IntervalMonthDayNanoType},
};
use domain::items::Column;
use ports::Kind;

use super::*;
use crate::landing::schema::{canonical, unite};

/// What lands of a column, as text; or why it does not.
fn land(array: ArrayRef) -> Result<Vec<String>, String> {
    let table = TableName::landing("t").expect("a name");
    let rows = RecordBatch::try_from_iter([("c", array)]).expect("a batch");
    let landed = canonical(&table, rows).map_err(|error| {
        assert_eq!(error.kind, Kind::Invalid);
        error.chain()
    })?;
    let text = cast(landed.column(0), &DataType::Utf8).expect("text");
    let text = text.as_string::<i32>().iter();
    Ok(text
        .map(|text| text.unwrap_or("<null>").to_owned())
        .collect())
}

fn refused(array: ArrayRef, needle: &str) {
    let told = land(array).expect_err("refused");
    assert!(
        told.contains("column `c`") && told.contains(needle),
        "{told}"
    );
}

#[test]
fn nanoseconds_are_kept_while_they_are_whole_microseconds() {
    let whole = TimestampNanosecondArray::from(vec![Some(1_000), None]);
    assert_eq!(
        land(Arc::new(whole)).expect("landed"),
        ["1970-01-01T00:00:00.000001", "<null>"]
    );
    let parts = TimestampNanosecondArray::from(vec![1_000, 1_001]);
    refused(Arc::new(parts.clone()), "microseconds");
    refused(
        Arc::new(parts.clone().with_timezone("+02:00")),
        "microseconds",
    );
    let keys = arrow::array::Int32Array::from(vec![0, 1]);
    let words = DictionaryArray::<Int32Type>::new(keys, Arc::new(parts));
    refused(Arc::new(words), "microseconds");
}

#[test]
fn numbers_in_lists_have_a_form_or_are_refused() {
    let list = |numbers: Vec<Option<f64>>| -> ArrayRef {
        Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>([Some(
            numbers,
        )]))
    };
    assert_eq!(
        land(list(vec![Some(0.1), None])).expect("landed"),
        ["[0.1,null]"]
    );
    refused(list(vec![Some(f64::NAN)]), "NULL");
    refused(list(vec![Some(1.0), Some(f64::INFINITY)]), "NULL");
    let plain = Float64Array::from(vec![f64::NAN]);
    assert_eq!(land(Arc::new(plain)).expect("landed"), ["NaN"]);
}

#[test]
fn wide_and_narrow_numbers_are_exact() {
    let wide = UInt64Array::from(vec![u64::MAX]);
    assert_eq!(
        land(Arc::new(wide)).expect("landed"),
        ["18446744073709551615"]
    );
    let half: ArrayRef = Arc::new(Float64Array::from(vec![0.5]));
    let half = cast(&half, &DataType::Float16).expect("a half");
    assert!(half.as_any().is::<Float16Array>());
    assert_eq!(land(half).expect("landed"), ["0.5"]);
    let digits = "1".repeat(50);
    let big: ArrayRef = Arc::new(StringArray::from(vec![digits.clone()]));
    let big = cast(&big, &DataType::Decimal256(60, 2)).expect("a number");
    let landed = land(big).expect("landed");
    assert_eq!(landed[0].trim_matches('"'), format!("{digits}.00"));
}

#[test]
fn intervals_are_told_with_their_months() {
    let value = IntervalMonthDayNanoType::make_value(14, 3, 5 * 3_600_000_000_000);
    let landed = land(Arc::new(IntervalMonthDayNanoArray::from(vec![value]))).expect("landed");
    assert!(landed[0].contains("14 mons 3 days 5 hours"), "{landed:?}");
}

/// A landing table of events may well have a column `reason`, as every quarantine has.
#[test]
fn a_column_of_events_is_spelled_as_in_the_table() {
    let columns = |names: &[&str]| -> Vec<Column> {
        let column = |name: &&str| Column {
            name: (*name).to_owned(),
            kind: String::from("VARCHAR"),
        };
        names.iter().map(column).collect()
    };
    let known = ["id", "received_at", "payload", "reason", "Amount"];
    let found = columns(&["id", "received_at", "payload", "amount"]);
    let landing = TableName::landing("orders").expect("a name");
    let mut of_events = columns(&known);
    let told = unite(&landing, &mut of_events, &found).expect_err("refused");
    assert!(told.contains("`amount` is `Amount`"), "{told}");
    assert_eq!(of_events, columns(&known), "as it was");
    let quarantine = TableName::new("quarantine", "orders").expect("a name");
    unite(&quarantine, &mut of_events, &found).expect("it takes in what others sent");
    assert_eq!(of_events.len(), known.len() + 1);
}
