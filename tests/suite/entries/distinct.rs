//! E-1 as a property: of many generated calls no two different ones share a fingerprint, and equal ones agree.

use std::hash::{DefaultHasher, Hash, Hasher};

use anyhow::{Result, ensure};
use domain::fingerprint::{Call, Moment, Value};
use libtest_mimic::Trial;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};

use crate::plain::test;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test(
            "entries::no_two_of_100_000_calls_share_a_fingerprint",
            || distinct(100_000),
        ),
        test(
            "entries::no_two_of_10_000_000_calls_share_a_fingerprint",
            || distinct(10_000_000),
        ),
        test("entries::equal_calls_agree_in_any_order", shuffled),
    ]
}

/// A few words, so that calls are often nearly the same.
const WORDS: [&str; 8] = ["", "a", "b", "ab", "1", "null", "true", "1.5"];

fn word(random: &mut StdRng) -> String {
    WORDS[random.random_range(0..WORDS.len())].to_owned()
}

fn value(random: &mut StdRng, depth: u32) -> Value {
    let kinds = if depth == 0 { 13 } else { 19 };
    let small = |random: &mut StdRng| i64::from(random.random_range(-3_i8..100));
    let moment = |random: &mut StdRng| Moment {
        seconds: small(random),
        nanos: random.random_range(0..3),
    };
    let some = |random: &mut StdRng| {
        let count = random.random_range(0..4);
        (0..count)
            .map(|_| value(random, depth - 1))
            .collect::<Vec<_>>()
    };
    match random.random_range(0..kinds) {
        0 => Value::Null,
        1 => Value::Bool(random.random()),
        2 => Value::from(small(random)),
        3 => Value::from(random.random::<i64>()),
        #[expect(clippy::cast_precision_loss, reason = "small")]
        4 => Value::Float(small(random) as f64 / 2.0),
        5 => format!("{}.{}", small(random), random.random_range(0..9_u8))
            .parse()
            .map_or(Value::Null, Value::Decimal),
        6 => Value::from(word(random)),
        7 => Value::Bytes(word(random).into_bytes()),
        8 => Value::Date(small(random)),
        9 => Value::Time(random.random_range(0..100)),
        10 => match random.random() {
            true => Value::DateTime(moment(random)),
            false => Value::Instant(moment(random)),
        },
        11 => Value::Duration(moment(random)),
        12 => Value::Uuid([random.random_range(0..4); 16]),
        13 => Value::List(some(random)),
        14 => Value::Tuple(some(random)),
        15 => Value::Set(some(random)),
        16 => Value::Map(
            some(random)
                .into_iter()
                .map(|key| (key, value(random, depth - 1)))
                .collect(),
        ),
        17 => Value::Record {
            name: word(random),
            fields: vec![(word(random), value(random, depth - 1))],
        },
        _ => Value::Query {
            dialect: word(random),
            database: word(random),
            sql: word(random),
            parameters: some(random),
        },
    }
}

/// What a value is, digested by other rules than the encoding's: for telling whether two are the same.
fn same(value: &Value) -> u64 {
    let mut digest = DefaultHasher::new();
    std::mem::discriminant(value).hash(&mut digest);
    let all = |values: &[Value]| values.iter().map(same).collect::<Vec<u64>>();
    match value {
        Value::Null => {}
        Value::Bool(value) => value.hash(&mut digest),
        Value::Int(number) => number.to_string().hash(&mut digest),
        Value::Float(number) => (number + 0.0).to_bits().hash(&mut digest),
        Value::Decimal(number) => number.to_string().hash(&mut digest),
        Value::Text(text) | Value::Opaque(text) => text.hash(&mut digest),
        Value::Bytes(bytes) => bytes.hash(&mut digest),
        Value::Date(days) => days.hash(&mut digest),
        Value::Time(nanos) => nanos.hash(&mut digest),
        Value::DateTime(moment) | Value::Instant(moment) | Value::Duration(moment) => {
            moment.hash(&mut digest);
        }
        Value::Uuid(bytes) => bytes.hash(&mut digest),
        Value::List(values) | Value::Tuple(values) => all(values).hash(&mut digest),
        Value::Set(values) => {
            let mut members = all(values);
            members.sort_unstable();
            members.dedup();
            members.hash(&mut digest);
        }
        Value::Map(pairs) => {
            let mut pairs: Vec<_> = pairs.iter().map(|(k, v)| (same(k), same(v))).collect();
            pairs.sort_unstable();
            pairs.hash(&mut digest);
        }
        Value::Record { name, fields } => {
            let mut fields: Vec<_> = fields.iter().map(|(k, v)| (k, same(v))).collect();
            fields.sort_unstable();
            (name, fields).hash(&mut digest);
        }
        Value::Query {
            dialect,
            database,
            sql,
            parameters,
        } => (dialect, database, sql, all(parameters)).hash(&mut digest),
    }
    digest.finish()
}

fn call(random: &mut StdRng) -> Call {
    let count = random.random_range(0..3);
    let mut call = Call::new(word(random), random.random_range(0..3));
    for _ in 0..count {
        call = call.with(value(random, 2));
    }
    if random.random() {
        call = call.with_named(word(random), value(random, 1));
    }
    call
}

/// The same of a call. Among ten million, two that differ look alike once in some hundred thousand seeds.
fn identity(call: &Call) -> u64 {
    let mut digest = DefaultHasher::new();
    let named: Vec<_> = call
        .named
        .iter()
        .map(|(name, value)| (name, same(value)))
        .collect();
    let positional: Vec<_> = call.positional.iter().map(same).collect();
    (&call.name, call.version, positional, named).hash(&mut digest);
    digest.finish()
}

/// Half of a digest, for comparing many.
fn half(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .take(16)
        .fold(0, |all, byte| all << 8 | u128::from(*byte))
}

fn distinct(count: usize) -> Result<()> {
    let mut random = StdRng::seed_from_u64(20_260_722);
    let (mut seen, mut made) = (Vec::new(), 0);
    // Until there are so many different ones.
    while seen.len() < count {
        let more = (count - seen.len()).max(count / 10);
        made += more;
        seen.reserve_exact(more);
        for _ in 0..more {
            let call = call(&mut random);
            // A map whose key is there twice has no fingerprint.
            if let Ok(print) = call.fingerprint() {
                seen.push((half(print.as_bytes()), identity(&call)));
            }
        }
        seen.sort_unstable();
        seen.dedup();
    }
    for two in seen.windows(2) {
        ensure!(two[0].0 != two[1].0, "two calls share {:x}", two[0].0);
    }
    seen.sort_unstable_by_key(|(_, same)| *same);
    for two in seen.windows(2) {
        ensure!(two[0].1 != two[1].1, "one call has two fingerprints");
    }
    println!("{} different calls among {made}", seen.len());
    Ok(())
}

fn shuffled() -> Result<()> {
    let mut random = StdRng::seed_from_u64(7);
    for _ in 0..2_000 {
        let one = call(&mut random);
        let mut other = one.clone();
        other
            .positional
            .iter_mut()
            .for_each(|value| shuffle(value, &mut random));
        other.named.shuffle(&mut random);
        ensure!(
            one.fingerprint().ok() == other.fingerprint().ok(),
            "{one:?}"
        );
    }
    Ok(())
}

/// Puts what has no order into another one.
fn shuffle(value: &mut Value, random: &mut StdRng) {
    match value {
        Value::Set(values) => {
            values.iter_mut().for_each(|value| shuffle(value, random));
            values.shuffle(random);
        }
        Value::Map(pairs) => pairs.shuffle(random),
        Value::Record { fields, .. } => fields.shuffle(random),
        Value::List(values) | Value::Tuple(values) => {
            values.iter_mut().for_each(|value| shuffle(value, random));
        }
        _ => {}
    }
}
