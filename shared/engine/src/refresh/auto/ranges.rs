//! What keys lie between: a condition that statistics of files can be held against, which a set of keys is not.

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    compute::{cast, max, max_string, min, min_string},
    datatypes::{DataType, Int64Type},
};
use ports::query::Parameter;

/// Conditions that hold for all keys, as far as their columns are whole numbers or text, and their parameters.
pub(super) fn ranges(columns: &[String], keys: &[RecordBatch]) -> (Vec<String>, Vec<Parameter>) {
    let (mut conditions, mut parameters) = (Vec::new(), Vec::new());
    for (at, name) in columns.iter().enumerate() {
        let arrays: Vec<&ArrayRef> = keys.iter().map(|batch| batch.column(at)).collect();
        let Some((least, most)) = ends(&arrays) else {
            continue;
        };
        parameters.extend([least, most]);
        let (from, to) = (parameters.len() - 1, parameters.len());
        let between = format!("{name} BETWEEN ${from} AND ${to}");
        conditions.push(match arrays.iter().any(|array| array.null_count() > 0) {
            true => format!("({between} OR {name} IS NULL)"),
            false => between,
        });
    }
    (conditions, parameters)
}

/// The least and the greatest value; none when there is none, or no parameter can hold it.
fn ends(arrays: &[&ArrayRef]) -> Option<(Parameter, Parameter)> {
    match arrays.first()?.data_type() {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            let numbers = arrays
                .iter()
                .map(|array| cast(array, &DataType::Int64).ok());
            let numbers: Vec<ArrayRef> = numbers.collect::<Option<_>>()?;
            let numbers = numbers
                .iter()
                .map(|array| array.as_primitive::<Int64Type>());
            let least = numbers.clone().filter_map(min).min()?;
            let most = numbers.filter_map(max).max()?;
            Some((Parameter::Integer(least), Parameter::Integer(most)))
        }
        DataType::Utf8 => {
            let texts = arrays.iter().map(|array| array.as_string::<i32>());
            let least = texts.clone().filter_map(min_string).min()?;
            let most = texts.filter_map(max_string).max()?;
            let text = |text: &str| Parameter::Text(text.to_owned());
            Some((text(least), text(most)))
        }
        _ => None,
    }
}
