//! Reads. All are consistent; the SDK may retry them as it likes.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{Get, TransactGetItem};
use ports::{
    Kind, Result,
    state::{Item, Key, Span},
};

use super::{
    DynamoState,
    failure::{self, Failure},
    item::{Stored, parse},
    keys::{self, Attributes, PARTITION, SORT},
    large,
};

/// Most items of one transaction that reads.
const TOGETHER_MAX: usize = 100;
/// As many items are never over the 4 MB that such a transaction reads.
const TOGETHER_MIN: usize = 10;
const _: () = assert!(TOGETHER_MIN * (large::INLINE_MAX + 4_096) < 4_000_000);
/// Most attempts to read items as of one moment.
const ATTEMPTS: u32 = 10;
/// Most times that values are looked for whose objects are gone.
const LOOKS: u32 = 3;
/// Most items asked for in one page of a query; its bytes end it sooner when they are large.
const PAGE_MAX: usize = 10_000;

const READ: &str = "read items";
const QUERY: &str = "query items";

pub(super) async fn get(state: &DynamoState, key: &Key) -> Result<Option<Item>> {
    let read = || async move { Ok(vec![stored(state, key).await?]) };
    let items = look(state, read).await?;
    Ok(items.into_iter().flatten().next())
}

pub(super) async fn get_many(state: &DynamoState, keys: &[Key]) -> Result<Vec<Option<Item>>> {
    // DynamoDB refuses to read one item twice in a transaction.
    let mut places = HashMap::with_capacity(keys.len());
    let mut unique = Vec::with_capacity(keys.len());
    for key in keys {
        places.entry(key).or_insert_with(|| {
            unique.push(key.clone());
            unique.len() - 1
        });
    }
    let items = match unique.as_slice() {
        [] => Vec::new(),
        [key] => vec![get(state, key).await?],
        many => look(state, || together(state, many)).await?,
    };
    Ok(keys.iter().map(|key| items[places[key]].clone()).collect())
}

pub(super) async fn query(state: &DynamoState, span: &Span) -> Result<Vec<Item>> {
    if span.limit == 0 || span.until.as_ref().is_some_and(|until| *until <= span.from) {
        return Ok(Vec::new());
    }
    let items = look(state, || stretch(state, span)).await?;
    Ok(items.into_iter().flatten().collect())
}

/// Reads with `read`, then the values that are objects. If one is gone, its item has been replaced meanwhile and the object
/// swept: then all is read again. If it is gone for good, something else has deleted it.
async fn look<R>(state: &DynamoState, read: impl Fn() -> R) -> Result<Vec<Option<Item>>>
where
    R: Future<Output = Result<Vec<Option<Stored>>>>,
{
    let mut looks = 1;
    loop {
        let loaded = large::load(state.objects.as_ref(), read().await?).await;
        match loaded {
            Err(gone) if gone.kind == Kind::NotFound && looks < LOOKS => looks += 1,
            Err(mut gone) if gone.kind == Kind::NotFound => {
                gone.kind = Kind::Corrupt;
                return Err(gone);
            }
            answer => return answer,
        }
    }
}

pub(super) async fn stored(state: &DynamoState, key: &Key) -> Result<Option<Stored>> {
    let read = state
        .client
        .get_item()
        .table_name(&*state.table)
        .set_key(Some(keys::attributes(key)?))
        .consistent_read(true);
    let answer = read.send().await.map_err(|error| {
        failure::of(&error).into_error("read item", format!("{}/{}", key.partition, key.sort))
    })?;
    answer
        .item
        .map(|item| parse(&state.table, item))
        .transpose()
}

/// Items as of one moment.
///
/// More than one transaction can read are read twice: if every version is the same both times, all of them were so at the
/// moment between, because no version comes back. (An item that was absent both times and created and deleted between
/// them is not seen; nothing here lives so briefly.)
async fn together(state: &DynamoState, keys: &[Key]) -> Result<Vec<Option<Stored>>> {
    let wanted = keys
        .iter()
        .map(keys::attributes)
        .collect::<Result<Vec<_>>>()?;
    let mut size = TOGETHER_MAX;
    let mut before: Option<Vec<Option<u64>>> = None;
    let mut attempt = 0;
    loop {
        let failure = match collect(state, &wanted, size).await {
            Ok(items) => {
                let items = items.into_iter();
                let items =
                    items.map(|item| item.map(|item| parse(&state.table, item)).transpose());
                let items = items.collect::<Result<Vec<_>>>()?;
                if keys.len() <= size {
                    return Ok(items);
                }
                let versions: Vec<_> = items
                    .iter()
                    .map(|item| item.as_ref().map(|item| item.version))
                    .collect();
                match before.replace(versions) {
                    None => continue,
                    Some(earlier) if before.as_ref() == Some(&earlier) => return Ok(items),
                    Some(_) => Failure::Busy,
                }
            }
            // Most likely too many bytes: fewer at a time are sure to fit.
            Err(Failure::Refused(Kind::Invalid, _)) if size > TOGETHER_MIN => {
                size = (size / 3).max(TOGETHER_MIN);
                before = None;
                continue;
            }
            Err(failure @ (Failure::Busy | Failure::Throttled(_))) => failure,
            Err(failure) => return Err(failure.into_error(READ, subject(keys))),
        };
        attempt += 1;
        if attempt == ATTEMPTS {
            return Err(failure.into_error(READ, subject(keys)));
        }
        state.pause(attempt).await;
    }
}

fn subject(keys: &[Key]) -> String {
    let first = keys.first().map_or("", |key| key.partition.as_str());
    format!("{} items, the first of {first}", keys.len())
}

/// Reads items, `size` of them in one transaction.
async fn collect(
    state: &DynamoState,
    wanted: &[Attributes],
    size: usize,
) -> Result<Vec<Option<Attributes>>, Failure> {
    let mut all = Vec::with_capacity(wanted.len());
    for part in wanted.chunks(size) {
        let gets = part.iter().map(|key| {
            let get = Get::builder()
                .table_name(&*state.table)
                .set_key(Some(key.clone()))
                .build()
                .expect("table and key are set");
            TransactGetItem::builder().get(get).build()
        });
        let answer = state
            .client
            .transact_get_items()
            .set_transact_items(Some(gets.collect()))
            .send()
            .await
            .map_err(|error| failure::of(&error))?;
        let items = answer.responses.unwrap_or_default();
        if items.len() != part.len() {
            let because = format!("{} answers to {} questions", items.len(), part.len());
            return Err(Failure::Unknown(because));
        }
        // An item without attributes is none: its key would be among them.
        let items = items.into_iter().map(|response| response.item);
        all.extend(items.map(|item| item.filter(|item| !item.is_empty())));
    }
    Ok(all)
}

/// A stretch of one partition, page after page until it is full.
async fn stretch(state: &DynamoState, span: &Span) -> Result<Vec<Option<Stored>>> {
    let partition = keys::partition(&span.partition)?;
    let from = keys::bound(&span.from)?;
    let until = span.until.as_deref().map(keys::bound).transpose()?;
    let expression = match &until {
        Some(_) => format!("{PARTITION} = :{PARTITION} AND {SORT} BETWEEN :from AND :until"),
        None => format!("{PARTITION} = :{PARTITION} AND {SORT} >= :from"),
    };
    // DynamoDB's end is inclusive, ours is not: one more, so that the page is full without the item at the end.
    let spare = usize::from(until.is_some() && span.reverse);
    let mut found: Vec<Option<Stored>> = Vec::new();
    let mut next = None;
    loop {
        let wanted = (span.limit - found.len() + spare).min(PAGE_MAX);
        let page = state
            .client
            .query()
            .table_name(&*state.table)
            .consistent_read(true)
            .key_condition_expression(&expression)
            .expression_attribute_values(format!(":{PARTITION}"), partition.clone())
            .expression_attribute_values(":from", from.clone());
        let page = match &until {
            Some(until) => page.expression_attribute_values(":until", until.clone()),
            None => page,
        };
        let answer = page
            .scan_index_forward(!span.reverse)
            .limit(i32::try_from(wanted).unwrap_or(i32::MAX))
            .set_exclusive_start_key(next)
            .send()
            .await
            .map_err(|error| failure::of(&error).into_error(QUERY, &span.partition))?;
        for item in answer.items.unwrap_or_default() {
            let item = parse(&state.table, item)?;
            let at_end = span
                .until
                .as_ref()
                .is_some_and(|until| item.key.sort == *until);
            if !at_end && found.len() < span.limit {
                found.push(Some(item));
            }
        }
        next = answer.last_evaluated_key.filter(|key| !key.is_empty());
        if next.is_none() || found.len() >= span.limit {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_that_is_read_together_fits() {
        const { assert!(TOGETHER_MIN * (large::INLINE_MAX + 4_096) < 4_000_000) }
    }

    #[test]
    fn an_error_names_how_many_and_where() {
        let keys = [Key::new("p", "a"), Key::new("q", "b")];
        assert_eq!(subject(&keys), "2 items, the first of p");
        let error = Failure::Busy.into_error(READ, subject(&keys));
        assert_eq!(error.kind, Kind::Unavailable);
    }
}
