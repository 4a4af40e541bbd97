//! Data sets: there whole or not at all.

use arrow::{
    array::{Int64Array, RecordBatch, StringArray},
    datatypes::{DataType, Field, Schema},
};
use bytes::Bytes;
use domain::fingerprint::Call;
use futures::stream;
use object_store::memory::InMemory;

use super::*;

mod bombs;

fn set(generation: &str) -> DataSet {
    let print = Call::new("f", 0).fingerprint().expect("encodes");
    DataSet {
        id: EntryId::new(print, None).expect("an id"),
        generation: generation.to_owned(),
    }
}

fn batch(rows: i64) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("s", DataType::Utf8, true),
    ]);
    let numbers = Int64Array::from_iter_values(0..rows);
    let texts = StringArray::from_iter_values((0..rows).map(|n| format!("row {n}")));
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(numbers), Arc::new(texts)])
        .expect("a batch")
}

fn rows(batches: Vec<Result<RecordBatch>>) -> Rows {
    Rows {
        schema: batch(0).schema(),
        stream: stream::iter(batches).boxed(),
    }
}

fn pieces(bytes: &[u8], size: usize) -> Upload {
    let pieces: Vec<Result<Bytes>> = bytes
        .chunks(size.max(1))
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    stream::iter(pieces).boxed()
}

async fn bytes(lake: &EntryLake, set: &DataSet) -> Bytes {
    let got = lake.objects.get(&path(set)).await.expect("there");
    got.bytes().await.expect("read")
}

#[tokio::test]
async fn rows_come_back_in_their_order_and_none_are_a_result_too() {
    let lake = EntryLake::new(Arc::new(InMemory::new()));
    for (name, count) in [("g1", 300_000), ("g2", 0)] {
        let set = set(name);
        assert!(lake.find(&set).await.expect("looked").is_none());
        let whole = batch(count);
        let stored = lake
            .write(&set, rows(vec![Ok(whole.clone())]))
            .await
            .expect("written");
        assert_eq!(stored.rows, u64::try_from(count).expect("small"));
        assert_eq!(lake.find(&set).await.expect("looked"), Some(stored.clone()));
        let read = lake.read(&set, stored.bytes).await.expect("opened");
        let batches: Vec<RecordBatch> = read.stream.try_collect().await.expect("read");
        let read = arrow::compute::concat_batches(&whole.schema(), &batches).expect("one schema");
        assert_eq!(read, whole);
    }
    assert_eq!(lake.list().await.expect("listed"), [set("g1"), set("g2")]);
    lake.delete(&set("g1")).await.expect("deleted");
    lake.delete(&set("g1")).await.expect("nothing to do");
    assert_eq!(lake.list().await.expect("listed"), [set("g2")]);
    let gone = lake.read(&set("g1"), 1_000).await.expect_err("gone");
    assert_eq!(gone.kind, Kind::NotFound);
}

#[tokio::test]
async fn a_build_that_fails_leaves_nothing() {
    let lake = EntryLake::new(Arc::new(InMemory::new()));
    let error = Error::new(Kind::Invalid, "run", "statement");
    let error = lake
        .write(&set("g"), rows(vec![Ok(batch(10)), Err(error)]))
        .await;
    assert_eq!(error.expect_err("it failed").kind, Kind::Invalid);
    assert!(lake.list().await.expect("listed").is_empty());
}

#[tokio::test]
async fn uploads_are_taken_whole_or_not_at_all() {
    let lake = EntryLake::new(Arc::new(InMemory::new()));
    lake.write(&set("made"), rows(vec![Ok(batch(1_000))]))
        .await
        .expect("written");
    let file = bytes(&lake, &set("made")).await;
    let stored = lake
        .receive(&set("sent"), pieces(&file, 700), 1 << 20)
        .await
        .expect("taken");
    assert_eq!((stored.rows, stored.bytes), (1_000, file.len() as u64));
    let broken = Error::new(Kind::Invalid, "read body", "upload");
    let cut = stream::iter(vec![Ok(file.slice(..100)), Err(broken)]).boxed();
    for (name, upload, limit, kind) in [
        ("cut short by the sender", cut, 1 << 20, Kind::Invalid),
        (
            "without its end",
            pieces(&file[..file.len() - 9], 700),
            1 << 20,
            Kind::Invalid,
        ),
        (
            "no parquet",
            pieces(b"id,n\n1,2\n", 700),
            1 << 20,
            Kind::Invalid,
        ),
        ("empty", pieces(b"", 700), 1 << 20, Kind::Invalid),
        ("too large", pieces(&file, 700), 1_000, Kind::TooLarge),
    ] {
        let error = lake
            .receive(&set("bad"), upload, limit)
            .await
            .expect_err(name);
        assert_eq!(error.kind, kind, "{name}: {}", error.chain());
        assert!(
            lake.find(&set("bad")).await.expect("looked").is_none(),
            "{name}"
        );
    }
}

/// Whoever sends a file says how long its footer is.
#[tokio::test]
async fn a_footer_is_not_read_whatever_it_says() {
    let objects = Arc::new(testkit::CountedObjects::new(Arc::new(InMemory::new())));
    let lake = EntryLake::new(objects.clone());
    let mut file = vec![0; usize::try_from(FOOTER_MAX).expect("it fits") + 1_000];
    let end = file.len() - 8;
    let says = u32::try_from(FOOTER_MAX + 1).expect("it fits");
    file[end..end + 4].copy_from_slice(&says.to_le_bytes());
    file[end + 4..].copy_from_slice(b"PAR1");
    let place = path(&set("g"));
    let put = objects.put(&place, Bytes::from(file).into()).await;
    put.expect("it is taken");
    let error = lake.check(&set("g")).await.expect_err("refused");
    assert_eq!(error.kind, Kind::Invalid, "{}", error.chain());
    assert!(objects.counts().bytes_got < 1 << 20);
    // What is looked at stays where it is.
    assert_eq!(lake.list().await.expect("listed"), [set("g")]);
}

#[tokio::test]
async fn columns_are_told_apart_and_can_be_stored() {
    let lake = EntryLake::new(Arc::new(InMemory::new()));
    let field = |name: &str, kind| Field::new(name, kind, true);
    let any = arrow::datatypes::UnionFields::from_fields([field("n", DataType::Int64)]);
    let any = DataType::Union(any, arrow::datatypes::UnionMode::Dense);
    for fields in [
        vec![field("a", DataType::Int64), field("a", DataType::Utf8)],
        vec![],
        vec![field("i", any)],
    ] {
        let schema = Arc::new(Schema::new(fields));
        let empty = Rows {
            schema,
            stream: stream::empty().boxed(),
        };
        let error = lake.write(&set("g"), empty).await.expect_err("refused");
        assert_eq!(error.kind, Kind::Invalid, "{}", error.chain());
    }
    assert!(lake.list().await.expect("listed").is_empty());
}

#[test]
fn names_of_others_are_left_alone() {
    let print = "ab".repeat(32);
    assert!(set_of(&Path::from(format!("entries/{print}/g/data.parquet"))).is_some());
    for other in [
        format!("entries/{print}/data.parquet"),
        String::from("entries/x/g/data.parquet"),
        format!("tables/{print}/g/d"),
    ] {
        assert_eq!(set_of(&Path::from(other.clone())), None, "{other}");
    }
}

/// One month would be read as no time at all.
#[tokio::test]
async fn an_upload_of_intervals_is_refused_by_name() {
    use parquet::{file::writer::SerializedFileWriter, schema::parser::parse_message_type};

    let lake = EntryLake::new(Arc::new(InMemory::new()));
    for (kind, why) in [
        ("fixed_len_byte_array(12) c (INTERVAL)", "months"),
        ("int96 c", "96 bits"),
    ] {
        let schema = parse_message_type(&format!("message m {{ optional {kind}; }}"));
        let schema = Arc::new(schema.expect("a schema"));
        let mut file = Vec::new();
        let writer = SerializedFileWriter::new(&mut file, schema, Arc::default());
        writer.expect("a writer").close().expect("closed");
        let error = lake.receive(&set("g"), pieces(&file, 700), 1 << 20).await;
        let error = error.expect_err("refused");
        let told = error.chain();
        assert_eq!(error.kind, Kind::Invalid, "{told}");
        assert!(told.contains("column `c`") && told.contains(why), "{told}");
        assert!(lake.list().await.expect("listed").is_empty());
    }
}

#[tokio::test]
async fn rows_are_picked_by_their_numbers_in_any_order_and_columns_in_any() {
    let lake = EntryLake::new(Arc::new(InMemory::new()));
    let set = set("g");
    let stored = lake.write(&set, rows(vec![Ok(batch(300_000))])).await;
    let bytes = stored.expect("written").bytes;
    let columns = ["s", "n"].map(String::from);
    let numbers = [299_999, 0, 131_072, 131_071, 7, 0, 250_000];
    let picked = lake.pick(&set, bytes, &numbers, &columns).await;
    let picked = picked.expect("picked");
    let texts: Vec<String> = numbers.iter().map(|n| format!("row {n}")).collect();
    assert_eq!(
        picked.column(0).as_ref(),
        &StringArray::from(texts) as &dyn arrow::array::Array
    );
    let found = picked.column(1).as_any().downcast_ref::<Int64Array>();
    let wanted: Vec<i64> = numbers.iter().map(|n| i64::from(*n)).collect();
    assert_eq!(found.expect("numbers").values(), &wanted[..]);
    let none = lake.pick(&set, bytes, &[], &columns).await.expect("picked");
    assert_eq!((none.num_rows(), none.num_columns()), (0, 2));
    for (numbers, columns) in [
        (vec![300_000], vec![String::from("n")]),
        (vec![1], vec![String::from("nobody")]),
    ] {
        let error = lake.pick(&set, bytes, &numbers, &columns).await;
        assert_eq!(error.expect_err("is not there").kind, Kind::Invalid);
    }
    let gone = lake.pick(&self::set("h"), bytes, &[1], &columns).await;
    assert_eq!(gone.expect_err("is gone").kind, Kind::NotFound);
    let some = lake
        .columns(&set, bytes, &columns[..1])
        .await
        .expect("opened");
    assert_eq!(some.schema.fields().len(), 1);
    let batches: Vec<RecordBatch> = some.stream.try_collect().await.expect("read");
    assert_eq!(
        batches.iter().map(RecordBatch::num_rows).sum::<usize>(),
        300_000
    );
}

#[tokio::test]
async fn indexes_lie_beside_the_data_and_go_with_it() {
    let lake = EntryLake::new(Arc::new(InMemory::new()));
    let set = set("g");
    lake.write(&set, rows(vec![Ok(batch(1))]))
        .await
        .expect("written");
    for name in ["a.index", "b.index"] {
        let path = folder(&set).join(name);
        let put = lake.objects.put(&path, "bytes".into());
        put.await.expect("written");
    }
    assert_eq!(
        lake.beside(&set).await.expect("listed"),
        ["a.index", "b.index"]
    );
    let sets = lake.list().await.expect("listed");
    assert_eq!(sets, std::slice::from_ref(&set));
    lake.remove(&set, "a.index").await.expect("removed");
    lake.remove(&set, "a.index").await.expect("nothing to do");
    assert_eq!(lake.beside(&set).await.expect("listed"), ["b.index"]);
    lake.delete(&set).await.expect("deleted");
    assert!(lake.beside(&set).await.expect("listed").is_empty());
}

/// Numbers that compress, but as little as that is possible: what does not compress at all is stored as it is, and whatever
/// lies there can be read.
fn noise(rows: usize) -> Rows {
    let mut dice = 7_i64;
    let numbers = (0..rows).map(|_| {
        dice = dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        dice >> 34
    });
    let numbers: arrow::array::ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    let batch = RecordBatch::try_from_iter([("n", numbers)]).expect("a batch");
    Rows {
        schema: batch.schema(),
        stream: stream::iter([Ok(batch)]).boxed(),
    }
}

/// Its footer is as it was written; a reader would have found out long after the commit.
#[tokio::test]
async fn an_upload_whose_pages_cannot_be_read_is_refused_and_never_was_there() {
    let objects = Arc::new(testkit::CountedObjects::new(Arc::new(InMemory::new())));
    let lake = EntryLake::new(objects.clone());
    // What is held in memory, and what goes through a file.
    for (count, requests) in [(2_000, Some(1)), (1_200_000, None)] {
        let made = lake.write(&set("made"), noise(count)).await;
        let rows = made.expect("written").rows;
        let file = bytes(&lake, &set("made")).await;
        objects.take();
        let (sent, bad) = (set("sent"), set("bad"));
        let stored = lake.receive(&sent, pieces(&file, 60_000), 1 << 30);
        let stored = stored.await.expect("taken");
        assert_eq!((stored.rows, stored.bytes), (rows, file.len() as u64));
        let asked = objects.take();
        assert_eq!((asked.gets, asked.heads), (0, 0), "{asked:?}");
        assert!(
            requests.is_none_or(|all| asked.requests() == all),
            "{asked:?}"
        );
        assert_eq!(lake.find(&sent).await.expect("looked"), Some(stored));
        let mut broken = file.to_vec();
        let (from, length) = (file.len() / 4, file.len() / 2);
        broken[from..from + length].fill(0xFF);
        objects.take();
        let error = lake.receive(&bad, pieces(&broken, 60_000), 1 << 30);
        let error = error.await.expect_err("refused");
        assert_eq!(error.kind, Kind::Invalid, "{}", error.chain());
        assert!(error.chain().contains("pages"), "{}", error.chain());
        let found = lake.find(&bad).await.expect("looked");
        assert!(found.is_none(), "it never was there");
        assert_eq!(objects.counts().deletes, 0);
    }
}

/// It would be an entry that nobody can look at.
#[tokio::test]
async fn an_upload_with_a_longer_footer_than_is_read_is_refused() {
    use parquet::{arrow::ArrowWriter, file::metadata::KeyValue};

    let lake = EntryLake::new(Arc::new(InMemory::new()));
    let long = "x".repeat(usize::try_from(FOOTER_MAX).expect("it fits"));
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, batch(0).schema(), None).expect("a writer");
    writer.write(&batch(3)).expect("written");
    writer.append_key_value_metadata(KeyValue::new(String::from("long"), long));
    writer.close().expect("closed");
    let sent = lake
        .receive(&set("g"), pieces(&file, 1 << 20), 1 << 30)
        .await;
    let error = sent.expect_err("refused");
    assert_eq!(error.kind, Kind::Invalid, "{}", error.chain());
    assert!(
        error.chain().contains("its footer has"),
        "{}",
        error.chain()
    );
    assert!(lake.list().await.expect("listed").is_empty());
}

/// The decoder itself ends by a panic there.
#[tokio::test]
async fn a_footer_may_name_parts_before_the_file_and_is_refused() {
    use parquet::file::metadata::{ColumnChunkMetaDataBuilder, ParquetMetaDataReader};

    let lake = EntryLake::new(Arc::new(InMemory::new()));
    let written = lake.write(&set("g"), rows(vec![Ok(batch(5))])).await;
    let size = written.expect("written").bytes;
    let file = bytes(&lake, &set("g")).await;
    let read = || ParquetMetaDataReader::new().parse_and_finish(&file);
    let sound = read().expect("a footer");
    accept::whole(&set("g"), &sound, size).expect("it is whole");
    let changes: [fn(ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder; 4] = [
        |chunk| chunk.set_dictionary_page_offset(Some(-4)),
        |chunk| {
            chunk
                .set_dictionary_page_offset(None)
                .set_data_page_offset(-4)
        },
        |chunk| chunk.set_total_compressed_size(-1),
        |chunk| chunk.set_total_compressed_size(i64::MAX),
    ];
    for change in changes {
        let mut footer = read().expect("a footer").into_builder();
        let groups = footer.take_row_groups().into_iter().map(|group| {
            let mut group = group.into_builder();
            let chunks = group.take_columns().into_iter();
            let chunks = chunks.map(|chunk| change(chunk.into_builder()).build().expect("a chunk"));
            let chunks = chunks.collect();
            group.set_column_metadata(chunks).build().expect("a group")
        });
        let groups = groups.collect();
        let footer = footer.set_row_groups(groups).build();
        let error = accept::whole(&set("g"), &footer, size).expect_err("refused");
        assert_eq!(error.kind, Kind::Corrupt, "{}", error.chain());
    }
}

#[tokio::test]
async fn a_file_that_was_found_before_is_looked_at_and_not_read() {
    let objects = Arc::new(testkit::CountedObjects::new(Arc::new(InMemory::new())));
    let (lake, set) = (EntryLake::new(objects.clone()), set("g1"));
    let written = lake.write(&set, rows(vec![Ok(batch(5))])).await;
    written.expect("written");
    let found = lake.find(&set).await.expect("looked").expect("there");
    objects.take();
    assert_eq!(lake.find(&set).await.expect("looked"), Some(found));
    let counts = objects.take();
    assert_eq!((counts.heads, counts.requests()), (1, 1), "{counts:?}");
    // Another upload under the same token, of whatever length, is another file.
    let texts = StringArray::from_iter_values((0..5).map(|n| format!("now {n}")));
    let numbers = Int64Array::from_iter_values(0..5);
    let again = RecordBatch::try_new(batch(0).schema(), vec![Arc::new(numbers), Arc::new(texts)]);
    let again = again.expect("a batch");
    let stored = lake
        .write(&set, rows(vec![Ok(again.clone()), Ok(again)]))
        .await
        .expect("written");
    assert_eq!(stored.rows, 10);
    assert_eq!(lake.find(&set).await.expect("looked"), Some(stored));
    let path = path(&set);
    objects.put(&path, "no parquet".into()).await.expect("put");
    let corrupt = lake.find(&set).await.expect_err("it is none");
    assert_eq!(corrupt.kind, Kind::Corrupt);
    lake.delete(&set).await.expect("deleted");
    assert_eq!(lake.find(&set).await.expect("looked"), None);
}
