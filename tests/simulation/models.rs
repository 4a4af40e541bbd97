//! The models of the simulated projects, and the sources they read.

use std::collections::BTreeMap;

use domain::{TableName, items::Column};
use settings::Source;
use tests::case::ModelText;

/// A model of a simulated project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    /// The last order of each item: merge.
    Orders,
    /// Another merge of the same orders, for a diamond.
    Names,
    /// Orders beside names: the diamond's other end.
    Pairs,
    /// Totals of the groups of orders, by the change feed.
    Groups,
    /// Change events with hard deletes.
    Users,
    /// Change events with soft deletes.
    Members,
    /// Totals of the groups of users: by the change feed, through hard deletes.
    Heads,
    /// Totals of the groups of orders, kept from the changes alone (`auto`).
    Sums,
    /// Totals of the groups of users, each computed anew when it changes (`auto`).
    Tallies,
    /// Orders and refunds, appended and re-stamped.
    Moves,
    /// All moves once more, by their own watermark.
    Ledger,
}

impl Shape {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Orders => "silver.orders",
            Self::Names => "silver.names",
            Self::Pairs => "gold.pairs",
            Self::Groups => "gold.groups",
            Self::Users => "silver.users",
            Self::Members => "silver.members",
            Self::Heads => "gold.heads",
            Self::Sums => "gold.sums",
            Self::Tallies => "gold.tallies",
            Self::Moves => "silver.moves",
            Self::Ledger => "gold.ledger",
        }
    }

    pub(crate) fn sql(self) -> &'static str {
        match self {
            Self::Orders => "SELECT item, grp, amt, _seq FROM landing.orders",
            Self::Names => "SELECT item, grp, _seq FROM landing.orders",
            Self::Pairs => {
                "SELECT a.item, a.amt, b.grp FROM silver.orders AS a JOIN silver.names AS b ON a.item = b.item \
                 WHERE a._seq > {watermark:silver.orders} OR b._seq > {watermark:silver.names}"
            }
            Self::Groups => {
                "SELECT c.grp, sum(l.amt) AS total, count(l.item) AS n \
                 FROM (SELECT DISTINCT grp FROM {changes:silver.orders}) AS c \
                 LEFT JOIN silver.orders AS l ON l.grp = c.grp GROUP BY c.grp"
            }
            Self::Users | Self::Members => {
                "SELECT op, lsn, item, grp, amt, _seq FROM landing.users"
            }
            Self::Heads => {
                "SELECT c.grp, sum(l.amt) AS total, count(l.item) AS n \
                 FROM (SELECT DISTINCT grp FROM {changes:silver.users}) AS c \
                 LEFT JOIN silver.users AS l ON l.grp = c.grp GROUP BY c.grp"
            }
            Self::Sums => {
                "SELECT grp, sum(amt) AS total, count(*) AS n FROM silver.orders GROUP BY grp"
            }
            Self::Tallies => {
                "SELECT grp, sum(amt) AS total, count(DISTINCT item) AS n FROM silver.users GROUP BY grp"
            }
            Self::Moves => {
                "SELECT item, amt, _seq FROM {changes:landing.orders} \
                 UNION ALL SELECT item, -amt AS amt, _seq FROM {changes:landing.refunds}"
            }
            Self::Ledger => "SELECT item, amt, _seq FROM silver.moves",
        }
    }

    fn config(self) -> Vec<(&'static str, &'static str)> {
        let own = ("incremental_filter", "WHERE _seq > {watermark}");
        let mut config = vec![("materialized", "incremental"), ("live", "true")];
        config.extend(match self {
            Self::Orders | Self::Names => {
                vec![
                    ("incremental_strategy", "merge"),
                    ("unique_key", "item"),
                    own,
                ]
            }
            Self::Pairs => vec![("incremental_strategy", "merge"), ("unique_key", "item")],
            Self::Groups | Self::Heads => {
                vec![
                    ("incremental_strategy", "delete+insert"),
                    ("unique_key", "grp"),
                ]
            }
            Self::Users | Self::Members => vec![
                ("incremental_strategy", "merge"),
                ("unique_key", "item"),
                ("cdc_op", "op"),
                ("cdc_seq", "lsn"),
                own,
                (
                    "cdc_deletes",
                    if self == Self::Users { "hard" } else { "soft" },
                ),
            ],
            Self::Sums | Self::Tallies => vec![("incremental_strategy", "auto")],
            Self::Moves => vec![("incremental_strategy", "append")],
            Self::Ledger => vec![("incremental_strategy", "append"), own],
        });
        config
    }

    /// The model as a file.
    pub(crate) fn text(self) -> ModelText {
        let config = self.config().into_iter();
        ModelText {
            name: self.name().to_owned(),
            config: config
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect::<BTreeMap<_, _>>(),
            sql: self.sql().to_owned(),
            asserts: Vec::new(),
        }
    }

    /// Columns that a reader is promised, in the order the oracle compares.
    pub(crate) fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Orders => &["item", "grp", "amt", "_seq"],
            Self::Names => &["item", "grp", "_seq"],
            Self::Pairs => &["item", "amt", "grp"],
            Self::Groups | Self::Heads | Self::Sums | Self::Tallies => &["grp", "total", "n"],
            Self::Users => &["item", "grp", "amt", "lsn"],
            Self::Members => &["item", "grp", "amt", "lsn", "_deleted"],
            Self::Moves | Self::Ledger => &["item", "amt", "_seq"],
        }
    }

    /// Columns of the key; none where rows are only added.
    pub(crate) fn key(self) -> &'static [&'static str] {
        match self {
            Self::Orders | Self::Names | Self::Pairs | Self::Users | Self::Members => &["item"],
            Self::Groups | Self::Heads | Self::Sums | Self::Tallies => &["grp"],
            Self::Moves | Self::Ledger => &["_seq"],
        }
    }

    /// The model of a name, among these.
    pub(crate) fn of(name: &TableName) -> Option<Self> {
        let text = name.to_string();
        Self::ALL.into_iter().find(|shape| shape.name() == text)
    }

    pub(crate) const ALL: [Self; 11] = [
        Self::Orders,
        Self::Names,
        Self::Pairs,
        Self::Groups,
        Self::Users,
        Self::Members,
        Self::Heads,
        Self::Sums,
        Self::Tallies,
        Self::Moves,
        Self::Ledger,
    ];
}

/// Projects: small ones, so that many histories are cheap.
pub(crate) const PROJECTS: [&[Shape]; 6] = [
    &[Shape::Orders, Shape::Groups],
    &[Shape::Users, Shape::Heads],
    &[Shape::Moves, Shape::Ledger],
    &[Shape::Orders, Shape::Names, Shape::Pairs],
    &[Shape::Users, Shape::Members],
    &[Shape::Orders, Shape::Moves, Shape::Users],
];

/// Projects that only the real query engine runs: which keys changes touch is asked for in SQL.
pub(crate) const KEYED: [&[Shape]; 2] = [
    &[Shape::Orders, Shape::Sums],
    &[Shape::Users, Shape::Tallies],
];

/// A source of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Feeder {
    Orders,
    Refunds,
    Users,
}

impl Feeder {
    pub(crate) const ALL: [Self; 3] = [Self::Orders, Self::Refunds, Self::Users];

    pub(crate) fn source(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Refunds => "refunds",
            Self::Users => "users",
        }
    }

    pub(crate) fn table(self) -> String {
        format!("landing.{}", self.source())
    }

    /// The sources that a project reads.
    pub(crate) fn of(project: &[Shape]) -> Vec<Self> {
        let reads = |feeder: &Self| {
            let table = feeder.table();
            project.iter().any(|shape| shape.sql().contains(&table))
        };
        Self::ALL.into_iter().filter(reads).collect()
    }
}

fn column(name: &str, kind: &str) -> Column {
    Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
    }
}

/// The settings of every source.
pub(crate) fn settings() -> Source {
    Source {
        columns: ["item", "grp", "amt"]
            .map(|name| column(name, "BIGINT"))
            .into(),
        key: vec!["item".to_owned()],
        ..Source::default()
    }
}

/// The columns of a source's landing table, as its first events would make them.
pub(crate) fn columns(feeder: Feeder) -> Vec<Column> {
    let first: &[(&str, &str)] = match feeder {
        Feeder::Orders | Feeder::Refunds => &[("id", "VARCHAR")],
        Feeder::Users => &[("op", "VARCHAR"), ("lsn", "BIGINT")],
    };
    let shared = [("received_at", "TIMESTAMP"), ("payload", "VARCHAR")];
    let last: &[(&str, &str)] = match feeder {
        Feeder::Orders | Feeder::Refunds => &[],
        Feeder::Users => &[("unavailable", "VARCHAR")],
    };
    let typed = [("item", "BIGINT"), ("grp", "BIGINT"), ("amt", "BIGINT")];
    let all = first.iter().chain(&shared).chain(last).chain(&typed);
    all.map(|(name, kind)| column(name, kind)).collect()
}
