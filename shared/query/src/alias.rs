//! The other name of the sequence column.

use std::collections::BTreeMap;

use domain::{
    LANDING, TableName,
    sql::{Bindings, SqlError, substitute},
};

/// Reads `_havn_seq` as `_seq`. Nothing else is substituted: placeholders are the business of whoever builds a model.
pub(crate) fn sequence(text: &str) -> Result<String, SqlError> {
    if !text.to_ascii_lowercase().contains("_havn_") {
        return Ok(text.to_owned());
    }
    // `{this}` cannot occur in a finished statement; the name stands in for a binding nobody asks for.
    let Ok(this) = TableName::new(LANDING, "this") else {
        return Ok(text.to_owned());
    };
    substitute(
        text,
        &Bindings {
            this: &this,
            watermark: None,
            watermarks: BTreeMap::new(),
            changes: None,
        },
    )
}
