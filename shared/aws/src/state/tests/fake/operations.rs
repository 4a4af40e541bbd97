//! The operations of the pretended DynamoDB.

use serde_json::{Value, json};

use super::{Row, World, expression};

/// Most bytes that a transaction reads, and that a page of a query holds.
const TOGETHER_MAX: usize = 4_000_000;
const PAGE_MAX: usize = 1_000_000;

/// The answer of one that met another transaction.
pub(super) fn busy(operation: &str, body: &Value) -> (u16, Value) {
    if operation == "PutItem" {
        return (400, json!({"__type": "x#TransactionConflictException"}));
    }
    let count = body["TransactItems"].as_array().map_or(0, Vec::len);
    let codes = (0..count).map(|index| {
        if index == 0 {
            "TransactionConflict"
        } else {
            "None"
        }
    });
    cancelled(codes)
}

fn cancelled<'a>(codes: impl Iterator<Item = &'a str>) -> (u16, Value) {
    let reasons: Vec<Value> = codes.map(|code| json!({"Code": code})).collect();
    let body = json!({
        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
        "Message": "Transaction cancelled",
        "CancellationReasons": reasons,
    });
    (400, body)
}

fn invalid(message: &str) -> (u16, Value) {
    (
        400,
        json!({"__type": "com.amazon.coral.validate#ValidationException", "message": message}),
    )
}

/// Where an item is: both tables of the store have keys of two texts.
fn place(table: &str, row: &Value) -> (String, String, String) {
    let text = |names: [&str; 2]| {
        let found = names.into_iter().find_map(|name| row[name]["S"].as_str());
        let text = found.expect("a key").to_owned();
        assert!(!text.is_empty(), "DynamoDB takes no empty key");
        text
    };
    (
        table.to_owned(),
        text(["p", "identifier"]),
        text(["s", "namespace"]),
    )
}

fn table(request: &Value) -> &str {
    request["TableName"].as_str().expect("a table")
}

fn size(row: &Row) -> usize {
    Value::Object(row.clone()).to_string().len()
}

impl World {
    pub(super) fn insert(&mut self, table: &str, row: Row) {
        let place = place(table, &Value::Object(row.clone()));
        self.items.insert(place, row);
    }

    pub(super) fn perform(&mut self, operation: &str, body: &Value) -> (u16, Value) {
        match operation {
            "GetItem" => (200, self.item(body)),
            "PutItem" => self.put_item(body),
            "Query" => (200, self.query(body)),
            "TransactGetItems" => self.read_together(body),
            "TransactWriteItems" => self.write_together(body),
            other => invalid(&format!("{other} is not pretended")),
        }
    }

    fn item(&self, request: &Value) -> Value {
        match self.items.get(&place(table(request), &request["Key"])) {
            Some(row) => json!({"Item": row}),
            None => json!({}),
        }
    }

    fn put_item(&mut self, request: &Value) -> (u16, Value) {
        let item = &request["Item"];
        let place = place(table(request), item);
        if !expression::holds(request, self.items.get(&place)) {
            return (400, json!({"__type": "x#ConditionalCheckFailedException"}));
        }
        self.items
            .insert(place, item.as_object().expect("an item").clone());
        (200, json!({}))
    }

    fn read_together(&self, body: &Value) -> (u16, Value) {
        let items = body["TransactItems"].as_array().expect("items");
        let found: Vec<Value> = items.iter().map(|item| self.item(&item["Get"])).collect();
        let sizes = found
            .iter()
            .filter_map(|item| item["Item"].as_object().map(size));
        // As text the bytes are a third more than they count.
        if items.len() > 100 || sizes.sum::<usize>() * 3 / 4 > TOGETHER_MAX {
            return invalid("too much for one transaction");
        }
        (200, json!({"Responses": found}))
    }

    fn write_together(&mut self, body: &Value) -> (u16, Value) {
        let token = body["ClientRequestToken"]
            .as_str()
            .expect("a token")
            .to_owned();
        if self.tokens.contains(&token) {
            return (200, json!({}));
        }
        let items = body["TransactItems"].as_array().expect("items");
        if items.len() > 100 {
            return invalid("too many items");
        }
        let parts: Vec<(&str, &Value)> = items
            .iter()
            .map(|item| {
                let (kind, request) = item
                    .as_object()
                    .and_then(|o| o.iter().next())
                    .expect("a part");
                (kind.as_str(), request)
            })
            .collect();
        let of = |kind: &str, request: &Value| {
            place(
                table(request),
                &request[if kind == "Put" { "Item" } else { "Key" }],
            )
        };
        let unmet: Vec<bool> = parts
            .iter()
            .map(|(kind, request)| !expression::holds(request, self.items.get(&of(kind, request))))
            .collect();
        if unmet.contains(&true) {
            let code = |unmet| {
                if unmet {
                    "ConditionalCheckFailed"
                } else {
                    "None"
                }
            };
            return cancelled(unmet.into_iter().map(code));
        }
        for (kind, request) in parts {
            let place = of(kind, request);
            match kind {
                "Put" => {
                    let item = request["Item"].as_object().expect("an item");
                    self.items.insert(place, item.clone());
                }
                "Delete" => {
                    self.items.remove(&place);
                }
                "Update" => {
                    let key = request["Key"].as_object().expect("a key");
                    let item = self.items.entry(place).or_insert_with(|| key.clone());
                    expression::update(request, item);
                }
                _ => assert_eq!(kind, "ConditionCheck"),
            }
        }
        self.tokens.insert(token);
        (200, json!({}))
    }

    fn query(&self, request: &Value) -> Value {
        let value = |name: &str| request["ExpressionAttributeValues"][name]["S"].as_str();
        let (partition, from) = (value(":p").expect("p"), value(":from").expect("from"));
        let until = value(":until");
        let forward = request["ScanIndexForward"].as_bool().unwrap_or(true);
        let after = request["ExclusiveStartKey"]["s"]["S"].as_str();
        let mut rows: Vec<(&str, &Row)> = self
            .items
            .iter()
            .filter(|((of, p, _), _)| of == table(request) && p == partition)
            .map(|((_, _, sort), row)| (sort.as_str(), row))
            .filter(|(sort, _)| *sort >= from && until.is_none_or(|until| *sort <= until))
            .collect();
        if !forward {
            rows.reverse();
        }
        let passed = |sort: &str| match after {
            Some(after) if forward => sort > after,
            Some(after) => sort < after,
            None => true,
        };
        rows.retain(|(sort, _)| passed(sort));
        let limit = request["Limit"]
            .as_u64()
            .map_or(usize::MAX, |limit| limit as usize);
        let (mut page, mut bytes) = (Vec::new(), 0);
        for (_, row) in &rows {
            if page.len() == limit || bytes > PAGE_MAX {
                break;
            }
            bytes += size(row);
            page.push((*row).clone());
        }
        let mut answer = json!({"Items": page});
        if let Some(last) = page
            .last()
            .filter(|_| page.len() == limit || page.len() < rows.len())
        {
            answer["LastEvaluatedKey"] = json!({"p": last["p"], "s": last["s"]});
        }
        answer
    }
}
