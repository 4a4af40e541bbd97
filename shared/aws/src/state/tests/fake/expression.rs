//! As much of the language of expressions as the store speaks.

use serde_json::Value;

use super::Row;

/// Whether the condition of a request holds for an item.
pub(super) fn holds(request: &Value, item: Option<&Row>) -> bool {
    let Some(condition) = request["ConditionExpression"].as_str() else {
        return true;
    };
    if condition.starts_with("attribute_not_exists(") {
        return item.is_none();
    }
    let (name, value) = condition.split_once(" = ").expect("a known condition");
    let wanted = &request["ExpressionAttributeValues"][value];
    item.is_some_and(|item| item.get(name) == Some(wanted))
}

/// Applies `SET #a = :a, #b = if_not_exists(#b, :b)`.
pub(super) fn update(request: &Value, item: &mut Row) {
    let expression = request["UpdateExpression"].as_str().expect("an expression");
    let clauses = expression
        .strip_prefix("SET #")
        .expect("a known expression");
    for clause in clauses.split(", #") {
        let (name, value) = clause.split_once(" = ").expect("a clause");
        let name = request["ExpressionAttributeNames"][format!("#{name}")].as_str();
        let name = name.expect("a name").to_owned();
        let place = value.rfind(':').expect("a value");
        let placeholder = value[place..].trim_end_matches(')');
        let new = request["ExpressionAttributeValues"][placeholder].clone();
        assert!(!new.is_null(), "no value for {placeholder}");
        if value.starts_with("if_not_exists") && item.contains_key(&name) {
            continue;
        }
        item.insert(name, new);
    }
}
