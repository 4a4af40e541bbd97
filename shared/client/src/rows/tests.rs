use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    amount: f64,
    note: Option<String>,
    tags: Vec<String>,
    place: Place,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Place {
    city: String,
    zip: Option<i32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum State {
    New,
    Paid,
}

/// Reads certain texts only, as dates do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Day(String);

impl TryFrom<String> for Day {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.len() {
            10 => Ok(Self(text)),
            _ => Err(String::from("no day")),
        }
    }
}

impl From<Day> for String {
    fn from(day: Day) -> Self {
        day.0
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Signup {
    n: i64,
    day: Day,
    late: Option<bool>,
}

fn order(id: u64) -> Order {
    Order {
        id,
        amount: 2.0,
        note: None,
        tags: vec![String::from("a"), String::from("b")],
        place: Place {
            city: String::from("Oslo"),
            zip: None,
        },
        state: State::Paid,
    }
}

#[test]
fn rows_come_back_as_they_went() {
    let orders = vec![order(1), order(u64::MAX)];
    let batches = to_batches(&orders).expect("batches");
    assert_eq!(of_batches::<Order>(&batches).expect("rows"), orders);
    let many: Vec<Order> = (0..20_000).map(order).collect();
    let batches = to_batches(&many).expect("batches");
    assert_eq!(of_batches::<Order>(&batches).expect("rows"), many);
}

#[test]
fn no_rows_have_the_columns_of_any_others() {
    let (none, some) = (to_batches::<Order>(&[]), to_batches(&[order(1)]));
    let (none, some) = (none.expect("batches"), some.expect("batches"));
    assert_eq!(none.schema, some.schema);
    assert_eq!(none.num_rows(), 0);
    let kinds: Vec<_> = some
        .schema
        .fields()
        .iter()
        .map(|field| field.data_type().clone())
        .collect();
    assert_eq!(
        kinds[..3],
        [DataType::UInt64, DataType::Float64, DataType::Utf8]
    );
    assert_eq!(of_batches::<Order>(&none).expect("rows"), []);
}

#[test]
fn what_the_type_does_not_tell_the_rows_do() {
    let signup = Signup {
        n: 1,
        day: Day(String::from("2026-07-22")),
        late: None,
    };
    let batches = to_batches(std::slice::from_ref(&signup)).expect("batches");
    assert_eq!(of_batches::<Signup>(&batches).expect("rows"), [signup]);
    let rows = vec![json!({ "a": 1, "b": null }), json!({ "a": 2, "c": "x" })];
    let batches = to_batches(&rows).expect("batches");
    assert_eq!(batches.num_rows(), 2);
    let back: Vec<Value> = of_batches(&batches).expect("rows");
    assert_eq!(back[1], json!({ "a": 2, "b": null, "c": "x" }));
}

#[test]
fn what_has_no_columns_is_refused() {
    assert!(to_batches::<Value>(&[]).is_err_and(|why| why.contains("record batches")));
    assert!(to_batches(&[json!(1)]).is_err_and(|why| why.contains("struct")));
    assert!(to_batches(&[1_i64]).is_err());
}
