//! What a table has to hold: computed from the events, in plain loops, by nothing that the product uses.

use std::collections::BTreeMap;

use domain::TableName;

use crate::{
    book::{Book, Landed},
    frame::{Cell, Rows},
    models::Shape,
};

fn landing<'a>(book: &'a Book, model: &TableName, table: &str) -> &'a [Landed] {
    let Ok(table) = table.parse::<TableName>() else {
        return &[];
    };
    let rows = book.landed.get(&table).map_or(&[][..], Vec::as_slice);
    let consumed = book.consumed(model, &table).position.sequence;
    let count = usize::try_from(consumed).unwrap_or(0).min(rows.len());
    &rows[..count]
}

fn number(index: usize) -> Cell {
    Cell::Int(i64::try_from(index + 1).unwrap_or(0))
}

/// The models whose rows a model is made of.
pub(crate) fn inputs(shape: Shape) -> &'static [Shape] {
    match shape {
        Shape::Orders | Shape::Names | Shape::Users | Shape::Members | Shape::Moves => &[],
        Shape::Pairs => &[Shape::Orders, Shape::Names],
        Shape::Groups | Shape::Sums => &[Shape::Orders],
        Shape::Heads | Shape::Tallies => &[Shape::Users],
        Shape::Ledger => &[Shape::Moves],
    }
}

/// The rows of a model that has consumed so much, sorted. `read` holds its model inputs as it consumed them, by
/// [`inputs`], each in the columns of its shape.
pub(crate) fn expected(book: &Book, shape: Shape, model: &TableName, read: &[Rows]) -> Rows {
    let mut rows: Rows = match shape {
        Shape::Orders | Shape::Names => {
            let mut last = BTreeMap::new();
            let orders = landing(book, model, "landing.orders");
            for (index, row) in orders.iter().enumerate() {
                last.insert(row.item, (index, row));
            }
            let row = |(index, row): &(usize, &Landed)| {
                let mut cells = vec![Cell::Int(row.item), Cell::Int(row.grp)];
                if shape == Shape::Orders {
                    cells.push(Cell::Int(row.amt));
                }
                cells.push(number(*index));
                cells
            };
            last.values().map(row).collect()
        }
        Shape::Users | Shape::Members => users(landing(book, model, "landing.users"), shape),
        Shape::Moves => {
            let orders = landing(book, model, "landing.orders").iter();
            let refunds = landing(book, model, "landing.refunds").iter();
            let all = orders
                .map(|row| (row.item, row.amt))
                .chain(refunds.map(|row| (row.item, -row.amt)));
            all.map(|(item, amt)| vec![Cell::Int(item), Cell::Int(amt)])
                .collect()
        }
        Shape::Ledger => read.first().cloned().unwrap_or_default(),
        Shape::Groups | Shape::Heads | Shape::Sums | Shape::Tallies => {
            totals(read.first().map_or(&[][..], Vec::as_slice))
        }
        Shape::Pairs => pairs(read),
    };
    rows.sort();
    rows
}

/// The newest event of each item says what it is.
fn users(events: &[Landed], shape: Shape) -> Rows {
    let mut newest: BTreeMap<i64, &Landed> = BTreeMap::new();
    for event in events {
        let newer = newest
            .get(&event.item)
            .is_none_or(|before| event.lsn > before.lsn);
        if newer {
            newest.insert(event.item, event);
        }
    }
    let row = |event: &&Landed| {
        let gone = event.op == "D";
        let mut cells = vec![
            Cell::Int(event.item),
            Cell::Int(event.grp),
            Cell::Int(event.amt),
        ];
        if gone {
            // Which of the late updates a deleted row still shows is not promised.
            cells[1..].fill(Cell::Null);
        }
        cells.push(Cell::Int(event.lsn));
        match shape {
            Shape::Members => cells.push(Cell::Bool(gone)),
            _ if gone => return None,
            _ => {}
        }
        Some(cells)
    };
    newest.values().filter_map(row).collect()
}

fn totals(rows: &[Vec<Cell>]) -> Rows {
    let mut totals: BTreeMap<Cell, (i64, i64)> = BTreeMap::new();
    for row in rows {
        let (total, count) = totals.entry(row[1].clone()).or_default();
        *total += row[2].int();
        *count += 1;
    }
    totals
        .into_iter()
        .map(|(group, (total, count))| vec![group, Cell::Int(total), Cell::Int(count)])
        .collect()
}

fn pairs(read: &[Rows]) -> Rows {
    let [orders, names] = read else {
        return Vec::new();
    };
    let mut pairs = Vec::new();
    for order in orders {
        for name in names.iter().filter(|name| name[0] == order[0]) {
            pairs.push(vec![order[0].clone(), order[2].clone(), name[1].clone()]);
        }
    }
    pairs
}

/// The rows of a table as they are compared: without what is not promised.
pub(crate) fn comparable(shape: Shape, rows: Rows) -> Rows {
    let promised = |mut row: Vec<Cell>| match shape {
        // A group without rows may stay, empty.
        Shape::Groups | Shape::Heads => (row[2].int() > 0).then_some(row),
        Shape::Moves => {
            row.truncate(2);
            Some(row)
        }
        Shape::Members => {
            if row[4] == Cell::Bool(true) {
                row[1..3].fill(Cell::Null);
            }
            Some(row)
        }
        Shape::Orders
        | Shape::Names
        | Shape::Pairs
        | Shape::Users
        | Shape::Sums
        | Shape::Tallies
        | Shape::Ledger => Some(row),
    };
    let mut rows: Rows = rows.into_iter().filter_map(promised).collect();
    rows.sort();
    rows
}
