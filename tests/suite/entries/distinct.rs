//! E-1 as a property: of many generated calls no two different ones share a fingerprint, and equal ones agree.

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
        )
        .with_ignored_flag(true),
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

/// What a value is, written down by other rules than the encoding's: for telling whether two are the same.
fn written(value: &Value) -> String {
    let all = |values: &[Value]| values.iter().map(written).collect::<Vec<_>>();
    match value {
        Value::Float(number) => format!("float({number:?})").replace("-0.0", "0.0"),
        Value::Decimal(number) => format!("decimal({number})"),
        Value::Int(number) => format!("int({number})"),
        Value::List(values) => format!("list{:?}", all(values)),
        Value::Tuple(values) => format!("tuple{:?}", all(values)),
        Value::Set(values) => {
            let mut members = all(values);
            members.sort_unstable();
            members.dedup();
            format!("set{members:?}")
        }
        Value::Map(pairs) => {
            let mut pairs: Vec<_> = pairs
                .iter()
                .map(|(k, v)| (written(k), written(v)))
                .collect();
            pairs.sort_unstable();
            format!("map{pairs:?}")
        }
        Value::Record { name, fields } => {
            let mut fields: Vec<_> = fields.iter().map(|(k, v)| (k, written(v))).collect();
            fields.sort_unstable();
            format!("record({name:?}{fields:?})")
        }
        Value::Query {
            dialect,
            database,
            sql,
            parameters,
        } => {
            format!("query({dialect:?}{database:?}{sql:?}{:?})", all(parameters))
        }
        plain => format!("{plain:?}"),
    }
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

fn identity(call: &Call) -> String {
    let named: Vec<_> = call
        .named
        .iter()
        .map(|(name, value)| (name, written(value)))
        .collect();
    let positional: Vec<_> = call.positional.iter().map(written).collect();
    format!("{:?} {} {positional:?} {named:?}", call.name, call.version)
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
    let mut seen = Vec::with_capacity(count);
    while seen.len() < count {
        let call = call(&mut random);
        // A map whose key is there twice has no fingerprint.
        let Ok(print) = call.fingerprint() else {
            continue;
        };
        let same = half(blake3::hash(identity(&call).as_bytes()).as_bytes());
        seen.push((half(print.as_bytes()), same));
    }
    seen.sort_unstable();
    seen.dedup();
    let different = seen.len();
    for two in seen.windows(2) {
        ensure!(two[0].0 != two[1].0, "two calls share {:x}", two[0].0);
    }
    seen.sort_unstable_by_key(|(_, same)| *same);
    for two in seen.windows(2) {
        ensure!(two[0].1 != two[1].1, "one call has two fingerprints");
    }
    println!("{different} different calls among {count}");
    ensure!(
        different * 2 > count,
        "only {different} different calls among {count}"
    );
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
