//! A transaction as the one request it becomes.

use aws_sdk_dynamodb::types::{ConditionCheck, Delete, Put, TransactWriteItem};
use domain::{Timestamp, items};
use ports::{
    Error, Kind, Result,
    state::{Expect, WRITES_MAX, Write},
};
use uuid::Uuid;

use super::{
    DynamoState,
    catalog::Row,
    item::{self, Body, VERSION, number},
    keys::{self, Attributes, PARTITION},
    large,
};

/// A transaction that is ready to be sent, as often as it takes, always with the same content.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) id: Uuid,
    /// For errors: the first key, and how many more.
    pub(super) subject: String,
    pub(super) request: Request,
    /// Keys of the puts: any of them, read again, may tell that the commit happened.
    pub(super) puts: Vec<Attributes>,
    /// The answer when it happened.
    pub(super) versions: Vec<u64>,
}

/// What is sent.
#[derive(Debug)]
pub(super) enum Request {
    /// Nothing: no write asks for anything.
    Nothing,
    /// One put that replaces this version. Half the price of a transaction of one, and as safe to send twice: once the
    /// version is gone it never comes back, so a sending that arrives late does nothing. Under other conditions it might,
    /// so those go as a transaction, whose token DynamoDB remembers.
    Replace { item: Attributes, before: u64 },
    /// Everything else: the parts, and for each the write that it is of.
    Transaction {
        actions: Vec<TransactWriteItem>,
        writes: Vec<usize>,
    },
}

/// A condition and its value.
type Condition = (Option<String>, Option<Attributes>);

impl Commit {
    /// Decides what is sent; stores large values and makes namespaces of the catalog, which is harmless if nothing follows.
    pub(super) async fn prepare(state: &DynamoState, writes: &[Write]) -> Result<Self> {
        let now = state.clock.now();
        let id = state.chance.id(now);
        let id = Uuid::parse_str(&id).expect("the contract of chance: ids are UUIDs");
        // All that may be refused comes before all that is stored.
        let keys = writes.iter().map(|write| keys::attributes(write.key()));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let rows = rows(state, writes)?;
        let bodies = large::store(state.objects.as_ref(), id, writes).await?;
        let mut commit = Self {
            id,
            subject: subject(writes),
            request: Request::Nothing,
            puts: Vec::new(),
            versions: Vec::with_capacity(writes.len()),
        };
        for (body, key) in bodies.iter().zip(&keys) {
            commit.puts.extend(body.is_some().then(|| key.clone()));
            commit
                .versions
                .push(body.as_ref().map_or(0, |_| item::version(id)));
        }
        let parts: Vec<_> = writes.iter().zip(keys).zip(bodies).collect();
        let mark = Mark {
            commit: id,
            marks_end: state.marks.map(|keep| now + keep),
        };
        commit.request = request(&state.table, mark, parts);
        if let (Some(catalog), false) = (&state.catalog, rows.is_empty()) {
            catalog
                .ensure_namespaces(&state.client, &rows, id, now)
                .await?;
            let mirrored = rows.iter().map(|row| row.action(&catalog.table, id, now));
            commit.request.add(&state.table, mirrored);
        }
        Ok(commit)
    }
}

/// The rows of the catalog, if there is one, that follow the writes.
fn rows(state: &DynamoState, writes: &[Write]) -> Result<Vec<Row>> {
    if state.catalog.is_none() {
        return Ok(Vec::new());
    }
    let rows = writes.iter().filter_map(|write| Row::of(write).transpose());
    let rows = rows.collect::<Result<Vec<_>>>()?;
    if writes.len() + rows.len() > WRITES_MAX {
        let because = format!(
            "with a row of the catalog for each of its {} pointers it has more than {WRITES_MAX}",
            rows.len()
        );
        let subject = format!("{} writes", writes.len());
        return Err(Error::new(Kind::Invalid, "write transaction", subject).because(because));
    }
    Ok(rows)
}

fn subject(writes: &[Write]) -> String {
    let Some(first) = writes.first().map(Write::key) else {
        return "nothing".to_owned();
    };
    let first = format!("{}/{}", first.partition, first.sort);
    match writes.len() {
        1 => first,
        many => format!("{first} and {} more", many - 1),
    }
}

/// What a commit writes into its items.
#[derive(Clone, Copy)]
struct Mark {
    commit: Uuid,
    /// When idempotency marks among them may go; none for never.
    marks_end: Option<Timestamp>,
}

impl Mark {
    fn attributes(self, write: &Write, key: Attributes, body: Body) -> Attributes {
        let ends = self
            .marks_end
            .filter(|_| items::is_mark(&write.key().partition));
        item::attributes(key, self.commit, write.expect(), body, ends)
    }
}

fn request(
    table: &str,
    mark: Mark,
    mut parts: Vec<((&Write, Attributes), Option<Body>)>,
) -> Request {
    if let [((write, key), Some(body))] = parts.as_mut_slice()
        && let Expect::Version(before) = write.expect()
    {
        let (key, body) = (std::mem::take(key), body.clone());
        let item = mark.attributes(write, key, body);
        return Request::Replace { item, before };
    }
    let mut actions = Vec::with_capacity(parts.len());
    let mut writes = Vec::with_capacity(parts.len());
    for (index, ((write, key), body)) in parts.into_iter().enumerate() {
        if let Some(action) = action(table, mark, write, key, body) {
            actions.push(action);
            writes.push(index);
        }
    }
    if actions.is_empty() {
        return Request::Nothing;
    }
    Request::Transaction { actions, writes }
}

impl Request {
    /// Adds parts that are of no write and hold no condition.
    fn add(&mut self, table: &str, more: impl Iterator<Item = TransactWriteItem>) {
        let (mut all, of) = match std::mem::replace(self, Self::Nothing) {
            Self::Nothing => (Vec::new(), Vec::new()),
            Self::Replace { item, before } => {
                let put = put(table, item, Expect::Version(before));
                (vec![put], vec![0])
            }
            Self::Transaction { actions, writes } => (actions, writes),
        };
        all.extend(more);
        *self = Self::Transaction {
            actions: all,
            writes: of,
        };
    }
}

/// The part of a transaction for a write; none for a check of nothing.
fn action(
    table: &str,
    mark: Mark,
    write: &Write,
    key: Attributes,
    body: Option<Body>,
) -> Option<TransactWriteItem> {
    let expect = write.expect();
    let action = TransactWriteItem::builder();
    match (write, body) {
        (Write::Put { .. }, Some(body)) => {
            Some(put(table, mark.attributes(write, key, body), expect))
        }
        (Write::Put { .. }, None) => unreachable!("every put has a body"),
        (Write::Delete { .. }, _) => {
            let (expression, values) = condition(expect);
            let delete = Delete::builder()
                .table_name(table)
                .set_key(Some(key))
                .set_condition_expression(expression)
                .set_expression_attribute_values(values)
                .build();
            Some(
                action
                    .delete(delete.expect("table and key are set"))
                    .build(),
            )
        }
        (Write::Check { .. }, _) if expect == Expect::Any => None,
        (Write::Check { .. }, _) => {
            let (expression, values) = condition(expect);
            let check = ConditionCheck::builder()
                .table_name(table)
                .set_key(Some(key))
                .set_condition_expression(expression)
                .set_expression_attribute_values(values)
                .build();
            let check = check.expect("table, key and condition are set");
            Some(action.condition_check(check).build())
        }
    }
}

fn put(table: &str, item: Attributes, expect: Expect) -> TransactWriteItem {
    let (expression, values) = condition(expect);
    let put = Put::builder()
        .table_name(table)
        .set_item(Some(item))
        .set_condition_expression(expression)
        .set_expression_attribute_values(values)
        .build();
    TransactWriteItem::builder()
        .put(put.expect("table and item are set"))
        .build()
}

/// What DynamoDB is asked to hold.
pub(super) fn condition(expect: Expect) -> Condition {
    match expect {
        Expect::Any => (None, None),
        Expect::Absent => (Some(format!("attribute_not_exists({PARTITION})")), None),
        Expect::Version(version) => (
            Some(format!("{VERSION} = :{VERSION}")),
            Some(Attributes::from([(format!(":{VERSION}"), number(version))])),
        ),
    }
}
