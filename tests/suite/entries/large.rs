//! SQL over an entry of ten million rows: what a statement reads is what it needs, counted in bytes and requests, and what
//! needs few rows costs the same however many there are.

use std::{fs::File, sync::Arc};

use ::parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use anyhow::{Context, Result, bail, ensure};
use arrow::{
    array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema, SchemaRef},
};
use domain::{
    EntrySettings,
    entry::{EntryId, Spec},
};
use engine::entries::{Ask, Claim, Claimed, Commit, Registry};
use futures::{StreamExt, stream};
use libtest_mimic::Trial;
use ports::tables::Rows;
use serde_json::{Value, json};
use testkit::{CountedObjects, MemoryState, ObjectCounts};
use tests::{site::Site, world::Lab};

use super::Desk;
use crate::plain::test_async;

pub(crate) fn trials() -> Vec<Trial> {
    vec![test_async(
        "entries::sql_over_ten_million_rows_reads_the_columns_and_row_groups_it_needs",
        ten_million,
    )]
}

const ROWS: i64 = 10_000_000;
/// Rows that are made at once: nothing holds more of them.
const BATCH: i64 = 65_536;
/// Values of the column that every row group has all of.
const GROUPS: i64 = 1_000;
/// What is read to find the footer, and with it when there is less of that.
const PREFETCH: u64 = 64 << 10;
/// Who reads the footer: where the data is looked for, and two threads that begin to read at once.
const READERS: u64 = 3;
/// Requests of a statement that needs few rows: a look, footers, and what some row groups have to say.
const FEW: u64 = 12;

/// The text of a row: 32 digits of which none can be told from another's.
fn text(row: i64) -> String {
    let mut digits = String::with_capacity(32);
    for half in 0..2_u64 {
        let seed = row.unsigned_abs() * 2 + half;
        let mut mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        for at in 0..16 {
            let digit = usize::try_from((mixed >> (4 * at)) & 15).unwrap_or_default();
            digits.push(char::from(b"0123456789abcdef"[digit]));
        }
    }
    digits
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("g", DataType::Int32, false),
        Field::new("wide", DataType::Utf8, false),
    ]))
}

/// The rows from one number on.
fn batch(first: i64) -> ports::Result<RecordBatch> {
    let last = (first + BATCH - 1).min(ROWS);
    let group = |row: i64| i32::try_from(row % GROUPS).unwrap_or_default();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(first..=last)),
        Arc::new(Int32Array::from_iter_values((first..=last).map(group))),
        Arc::new(StringArray::from_iter_values((first..=last).map(text))),
    ];
    RecordBatch::try_new(schema(), columns)
        .map_err(|error| ports::Error::new(ports::Kind::Invalid, "make", "rows").because(error))
}

/// The entry, where it is counted, and what its file says of itself.
struct Large {
    /// The process that built it, whose folder it is in.
    _built: Lab,
    /// Another, which has read nothing of it yet.
    desk: Desk,
    objects: Arc<CountedObjects>,
    file: ParquetMetaData,
    /// Bytes of footer and page index.
    tail: u64,
    /// Whether footer and page index were read before, and are not any more.
    warm: bool,
    last: ObjectCounts,
    complaints: Vec<String>,
}

impl Large {
    async fn build() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let warehouse = folder.path().join("warehouse");
        let files = embedded::FileObjects::open(&warehouse)?;
        let objects = Arc::new(CountedObjects::new(files));
        let state = Arc::new(MemoryState::new());
        let live = domain::LiveSettings::default();
        let uri = tests::world::file_uri(&warehouse);
        let on = |folder| {
            let (state, objects, live) = (state.clone(), objects.clone(), live.clone());
            Lab::on(state, objects, &uri, folder, &[], live)
        };
        let built = on(Some(folder))?;
        let registry = Registry::new(built.world.clone(), EntrySettings::default());
        let desk = Desk::on(Site::new(on(None)?, "")?)?;
        let id: EntryId = desk.id.parse()?;
        let claim = Claim {
            ask: Ask::default(),
            spec: Spec::default(),
            holder: String::from("test"),
            lease: None,
            wait: domain::Duration::ZERO,
        };
        let Claimed::Build(granted) = registry.claim(&id, &claim).await? else {
            bail!("no lease");
        };
        let step = usize::try_from(BATCH)?;
        let rows = Rows {
            schema: schema(),
            stream: stream::iter((1..=ROWS).step_by(step).map(batch)).boxed(),
        };
        registry.store(&id, &granted.token, rows).await?;
        registry
            .commit(&id, &granted.token, Commit::default())
            .await?;
        let path = warehouse
            .join("entries")
            .join(&desk.id)
            .join(&granted.token)
            .join("data.parquet");
        let opened = File::open(&path).with_context(|| path.display().to_string())?;
        let file = ParquetMetaDataReader::new().parse_and_finish(&opened)?;
        let chunks = file.row_groups().iter().flat_map(|group| group.columns());
        let ends = chunks
            .map(|chunk| chunk.byte_range())
            .map(|(at, bytes)| at + bytes);
        let tail = opened.metadata()?.len() - ends.max().unwrap_or(0);
        println!(
            "{} bytes in {} row groups, {tail} of them footer and page index",
            opened.metadata()?.len(),
            file.num_row_groups()
        );
        objects.take();
        Ok(Self {
            _built: built,
            desk,
            objects,
            file,
            tail,
            warm: false,
            last: ObjectCounts::default(),
            complaints: Vec::new(),
        })
    }

    /// Bytes of some columns in all row groups.
    fn columns(&self, names: &[&str]) -> u64 {
        let chunks = self
            .file
            .row_groups()
            .iter()
            .flat_map(|group| group.columns());
        chunks
            .filter(|chunk| names.contains(&chunk.column_path().string().as_str()))
            .map(|chunk| chunk.byte_range().1)
            .sum()
    }

    /// Bytes of so many row groups, whatever their columns: what lies close together is read together.
    fn groups(&self, count: u64) -> u64 {
        let bytes = |group: &::parquet::file::metadata::RowGroupMetaData| {
            let chunks = group.columns().iter();
            chunks.map(|chunk| chunk.byte_range().1).sum::<u64>()
        };
        let largest = self.file.row_groups().iter().map(bytes).max();
        count * largest.unwrap_or(0)
    }

    /// Runs a statement; complains when it reads more than so many bytes beside a footer that is not known yet, or asks more
    /// often.
    async fn ask(&mut self, sql: &str, bytes: u64, requests: u64, want: Value) -> Result<()> {
        self.objects.take();
        let answer = self
            .desk
            .send("POST", "/query", json!({ "sql": sql }))
            .await?;
        ensure!(answer.status == 200, "`{sql}`: {}", answer.text());
        self.last = self.objects.take();
        let found = answer.json()?["rows"].clone();
        ensure!(found == want, "`{sql}`: {found}, not {want}");
        let footers = match self.warm {
            true => PREFETCH,
            false => READERS * (self.tail + PREFETCH),
        };
        let (bytes_got, asked, most) = (self.last.bytes_got, self.last.requests(), bytes + footers);
        let told = format!(
            "`{sql}`: {bytes_got} of at most {most} bytes, {asked} of at most {requests} requests"
        );
        println!("{told}");
        if bytes_got > most || asked > requests {
            self.complaints.push(format!("{told}: {:?}", self.last));
        }
        Ok(())
    }
}

async fn ten_million() -> Result<()> {
    let mut large = Large::build().await?;
    let groups = large.file.num_row_groups() as u64;
    ensure!(groups >= 50, "{groups} row groups");
    ensure!(
        large.tail < large.columns(&["n", "g", "wide"]) / 100,
        "{} bytes of footer",
        large.tail
    );

    // The footer alone; once it is known, a look at whether the file is still there.
    for _ in 0..2 {
        let want = json!([{ "c": ROWS }]);
        large
            .ask("SELECT count(*) AS c FROM this", 0, FEW, want)
            .await?;
    }
    let counted = large.last;
    ensure!((counted.heads, counted.requests()) == (1, 1), "{counted:?}");
    // One column, of all rows.
    let (n, g) = (large.columns(&["n"]), large.columns(&["g"]));
    let want = json!([{ "total": ROWS * (ROWS + 1) / 2 }]);
    large
        .ask("SELECT sum(n) AS total FROM this", n, groups + FEW, want)
        .await?;
    large.warm = true;
    // No row group can be left out for its values, but the other columns can.
    let want = json!([{ "c": ROWS / GROUPS }]);
    let sql = "SELECT count(*) AS c FROM this WHERE g = 7";
    large.ask(sql, g, groups + FEW, want).await?;
    // A range that lies in one row group, and one that lies in two.
    let one = large.groups(1);
    let want = json!([{ "c": 1_001, "g": 999 }]);
    let sql = "SELECT count(wide) AS c, max(g) AS g FROM this WHERE n BETWEEN 5000000 AND 5001000";
    large.ask(sql, one, FEW, want).await?;
    let want = json!([{ "wide": text(131_072) }, { "wide": text(131_073) }]);
    let sql = "SELECT wide FROM this WHERE n IN (131072, 131073) ORDER BY n";
    large.ask(sql, 2 * one, FEW, want).await?;
    // One row, and none.
    let want = json!([{ "wide": text(7_654_321) }]);
    let sql = "SELECT wide FROM this WHERE n = 7654321";
    large.ask(sql, one, FEW, want).await?;
    let sql = "SELECT wide FROM this WHERE n > 10000000";
    large.ask(sql, 0, FEW, json!([])).await?;
    // Any rows: a row group for each of two threads.
    let sql = "SELECT length(wide) AS l FROM this LIMIT 10";
    let want = json!(vec![json!({ "l": 32 }); 10]);
    large.ask(sql, 2 * one, FEW, want).await?;
    // The greatest and the least: row groups that cannot hold them are left out once some are known.
    for (order, rows) in [("DESC", [ROWS, ROWS - 1]), ("ASC", [1, 2])] {
        let row = |n: i64| json!({ "n": n, "wide": text(n) });
        let sql = format!("SELECT n, wide FROM this ORDER BY n {order} LIMIT 2");
        let want = json!(rows.map(row));
        large.ask(&sql, 4 * one, FEW, want).await?;
    }
    let complaints = &large.complaints;
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(())
}
