//! Which calls share an entry (E-1).

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use client::{Error, Identity, MaterializedFrame, materialize};
use libtest_mimic::Trial;
use serde::{Serialize, Serializer};

use super::{Bench, Signup, Source, signups};
use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test_async(
            "client::n39_distinct_functions_of_one_name_share_nothing",
            named,
        ),
        test_async("client::n37_arguments_of_other_types_share_nothing", typed),
        test_async(
            "client::an_argument_without_an_encoding_is_named",
            unencodable,
        ),
        test_async("client::a_version_is_another_entry", versions),
        test_async(
            "client::other_languages_make_the_same_fingerprints",
            languages,
        ),
    ]
}

struct Shops;
struct Banks;

impl Shops {
    #[materialize(client = on.client, key_fn = |_| ())]
    async fn report(on: Source) -> Vec<Signup> {
        on.called();
        signups(1)
    }
}

impl Banks {
    #[materialize(client = on.client, key_fn = |_| ())]
    async fn report(on: Source) -> Vec<Signup> {
        on.called();
        signups(2)
    }
}

struct Generic<T>(std::marker::PhantomData<T>);

impl<T: Default + Into<i64> + Send> Generic<T> {
    #[materialize(client = on.client, key_fn = |_| ())]
    async fn report(on: Source) -> Vec<Signup> {
        on.called();
        signups(size_of::<T>().try_into().unwrap_or(0))
    }
}

mod inner {
    use super::*;

    #[materialize(client = on.client, key_fn = |_| ())]
    pub(super) async fn report(on: Source) -> Vec<Signup> {
        on.called();
        signups(3)
    }
}

#[materialize(client = on.client, key_fn = |_| ())]
async fn report(on: Source) -> Vec<Signup> {
    on.called();
    signups(4)
}

/// What a factory of functions would make: two of one name, and of one path.
async fn made(on: Source, which: i64) -> client::Result<MaterializedFrame> {
    if which == 5 {
        #[materialize(client = on.client, key_fn = |_| ())]
        async fn report(on: Source) -> Vec<Signup> {
            on.called();
            signups(5)
        }
        report(on).await
    } else {
        #[materialize(client = on.client, key_fn = |_| ())]
        async fn report(on: Source) -> Vec<Signup> {
            on.called();
            signups(6)
        }
        report(on).await
    }
}

async fn named() -> Result<()> {
    let bench = Bench::new()?;
    for _ in 0..2 {
        let on = || bench.source.clone();
        let frames = [
            (1, Shops::report(on()).await?),
            (2, Banks::report(on()).await?),
            (3, inner::report(on()).await?),
            (4, report(on()).await?),
            (5, made(on(), 5).await?),
            (6, made(on(), 6).await?),
            (4, Generic::<i32>::report(on()).await?),
            (8, Generic::<i64>::report(on()).await?),
        ];
        for (which, frame) in &frames {
            let rows: Vec<Signup> = frame.rows().await?;
            ensure!(rows == signups(*which), "{which}: {rows:?} of {frame:?}");
        }
        let mut ids: Vec<&str> = frames
            .iter()
            .map(|(_, frame)| frame.meta().id.as_str())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ensure!(ids.len() == 8, "{} entries", ids.len());
        bench.source.client.flush().await;
    }
    ensure!(bench.source.calls() == 8);
    Ok(())
}

/// An argument of many types.
#[derive(Clone, Debug)]
enum Argument {
    Text(&'static str),
    Int(i64),
    Bool(bool),
    Bytes(&'static [u8]),
    List(Vec<i64>),
    Pair(i64, i64),
    Map(BTreeMap<i64, &'static str>),
    Named(BTreeMap<&'static str, &'static str>),
    Refused,
}

impl Serialize for Argument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Int(number) => serializer.serialize_i64(*number),
            Self::Bool(yes) => serializer.serialize_bool(*yes),
            Self::Bytes(bytes) => serializer.serialize_bytes(bytes),
            Self::List(list) => list.serialize(serializer),
            Self::Pair(one, two) => (one, two).serialize(serializer),
            Self::Map(map) => map.serialize(serializer),
            Self::Named(map) => map.serialize(serializer),
            Self::Refused => Err(serde::ser::Error::custom("a connection has no value")),
        }
    }
}

#[materialize(client = on.client, key_fn = |_, argument: &Vec<Argument>| argument.clone())]
async fn of(on: Source, argument: Vec<Argument>) -> Vec<Signup> {
    on.called();
    signups(argument.len().try_into().unwrap_or(0))
}

async fn typed() -> Result<()> {
    let bench = Bench::new()?;
    let arguments = [
        Argument::Text("1"),
        Argument::Int(1),
        Argument::Bool(true),
        Argument::Text("true"),
        Argument::Bytes(b"1"),
        Argument::List(vec![1, 2]),
        Argument::Pair(1, 2),
        Argument::Map(BTreeMap::from([(1, "a")])),
        Argument::Named(BTreeMap::from([("1", "a")])),
    ];
    let mut ids = Vec::new();
    for argument in &arguments {
        let first = of(bench.source.clone(), vec![argument.clone()]).await?;
        bench.source.client.flush().await;
        let again = of(bench.other(), vec![argument.clone()]).await?;
        ensure!(first.meta().id == again.meta().id && again.is_hit());
        ids.push(first.meta().id.clone());
    }
    ids.sort_unstable();
    ids.dedup();
    ensure!(ids.len() == arguments.len(), "{} entries", ids.len());
    Ok(())
}

async fn unencodable() -> Result<()> {
    let bench = Bench::new()?;
    let refused = of(
        bench.source.clone(),
        vec![Argument::Int(1), Argument::Refused],
    )
    .await;
    let Err(Error::Argument(why)) = &refused else {
        bail!("{refused:?}");
    };
    ensure!(
        why.path == "kwargs.key_fn[1]" && why.why.contains("has no value"),
        "{why}"
    );
    ensure!(bench.source.calls() == 0 && bench.way.sent().is_empty());
    Ok(())
}

mod before {
    use super::*;

    #[materialize(client = on.client, version = 1, key_fn = |_| ())]
    pub(super) async fn report(on: Source) -> Vec<Signup> {
        on.called();
        signups(0)
    }
}

async fn versions() -> Result<()> {
    let bench = Bench::new()?;
    let (one, other) = (
        before::report(bench.source.clone()).await?,
        report(bench.source.clone()).await?,
    );
    ensure!(one.meta().id != other.meta().id && one.meta().version == 1);
    Ok(())
}

async fn languages() -> Result<()> {
    #[derive(Serialize)]
    struct Span {
        from: i64,
        regions: Vec<&'static str>,
    }
    let bench = Bench::new()?;
    let span = Span {
        from: 7,
        regions: vec!["eu", "us"],
    };
    let here = Identity::new("shop.revenue", 2)
        .argument("span", &span)?
        .argument("share", &0.5)?
        .argument("note", &None::<String>)?;
    let there = r#"{"name": "shop.revenue", "version": 2, "kwargs": {"note": null, "share": 0.5,
        "span": {"$record": {"name": "Span", "fields": {"regions": ["eu", "us"], "from": 7}}}}}"#;
    let answer = bench
        .site
        .send("POST", "/api/materialize/fingerprint", &[], there)
        .await?;
    let print = here.fingerprint()?.to_string();
    ensure!(
        answer.json()?["fingerprint"] == print.as_str(),
        "{}",
        answer.text()
    );
    Ok(())
}
