//! Files that hold far more than their length says.

use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter};

use super::*;

/// 300 MB in some kilobytes: one text, said very often.
fn bomb() -> Vec<u8> {
    let text = "x".repeat(512 << 10);
    let texts = StringArray::from_iter_values(std::iter::repeat_n(&text, 20));
    let texts: arrow::array::ArrayRef = Arc::new(texts);
    let batch = RecordBatch::try_from_iter([("s", texts)]).expect("a batch");
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_page_size_limit(4 << 20)
        .build();
    let mut file = Vec::new();
    let writer = parquet::arrow::ArrowWriter::try_new(&mut file, batch.schema(), Some(properties));
    let mut writer = writer.expect("a writer");
    for _ in 0..30 {
        writer.write(&batch).expect("written");
    }
    writer.close().expect("closed");
    file
}

/// The file with another footer.
fn refooted(file: &[u8], footer: impl FnOnce(ParquetMetaData) -> ParquetMetaData) -> Vec<u8> {
    let whole = Bytes::copy_from_slice(file);
    let read = ParquetMetaDataReader::new().parse_and_finish(&whole);
    let (before, end) = file.split_at(file.len() - 8);
    let length = u32::from_le_bytes(end[..4].try_into().expect("four bytes"));
    let mut told = before[..before.len() - usize::try_from(length).expect("small")].to_vec();
    let mut written = Vec::new();
    let footer = footer(read.expect("a footer"));
    let writer = ParquetMetaDataWriter::new(&mut written, &footer);
    writer.finish().expect("written");
    told.extend(written);
    told
}

/// A footer that does not tell how long its texts are, as older writers leave it.
fn untold(footer: ParquetMetaData) -> ParquetMetaData {
    let groups = footer.row_groups().iter().map(|group| {
        let chunks = group.columns().iter().map(|chunk| {
            let chunk = chunk.clone().into_builder();
            let chunk = chunk.set_unencoded_byte_array_data_bytes(None).build();
            chunk.expect("a chunk")
        });
        let group = group.clone().into_builder();
        let group = group.set_column_metadata(chunks.collect()).build();
        group.expect("a group")
    });
    ParquetMetaData::new(footer.file_metadata().clone(), groups.collect())
}

/// A footer whose groups, and so the file, have another number of rows than their columns have values.
fn counted(footer: &ParquetMetaData, rows: i64) -> ParquetMetaData {
    let groups = footer.row_groups().iter().map(|group| {
        let group = group.clone().into_builder().set_num_rows(rows).build();
        group.expect("a group")
    });
    ParquetMetaData::new(footer.file_metadata().clone(), groups.collect())
}

/// A file of 1,000 rows that says that it has another number of them, below 8,192, while its groups tell the truth. The writer
/// adds the groups up, so this is done by hand: fields of the footer are `1: version`, `2: schema`, `3: num_rows`,
/// `4: row_groups` in Thrift's compact protocol, numbers in zigzag and of variable length.
fn said(file: &[u8], rows: u16) -> Vec<u8> {
    let field = |rows: u16| {
        let zigzag = rows * 2;
        let low = u8::try_from(zigzag & 0x7F).expect("seven bits") | 0x80;
        let high = u8::try_from(zigzag >> 7).expect("seven bits");
        [0x16, low, high, 0x19]
    };
    let at = file.windows(4).rposition(|four| four == field(1_000));
    let mut file = file.to_vec();
    let at = at.expect("the count");
    file[at..at + 4].copy_from_slice(&field(rows));
    file
}

/// What is uploaded to the store itself is looked at by its footer alone.
#[tokio::test]
async fn a_footer_whose_counts_disagree_is_refused() {
    let lake = EntryLake::new(Arc::new(InMemory::new()));
    lake.write(&set("made"), rows(vec![Ok(batch(1_000))]))
        .await
        .expect("written");
    let file = bytes(&lake, &set("made")).await;
    let place = path(&set("sent"));
    let grouped = |rows| refooted(&file, |footer| counted(&footer, rows));
    for (sent, taken) in [
        (said(&file, 1_000), true),
        (said(&file, 5), false),
        (said(&file, 8_000), false),
        (grouped(1_000), true),
        (grouped(5), false),
        (grouped(4_000_000_000), false),
    ] {
        let put = lake.objects.put(&place, sent.into()).await;
        put.expect("put");
        match lake.check(&set("sent")).await {
            Ok(stored) => {
                assert!(taken, "{stored:?}");
                assert_eq!(stored.expect("there").rows, 1_000);
            }
            Err(error) => {
                assert!(!taken, "{}", error.chain());
                assert_eq!(error.kind, Kind::Invalid, "{}", error.chain());
                assert!(error.chain().contains("rows"), "{}", error.chain());
            }
        }
    }
}

/// Nobody could read a moment of it as text, nor build the entry again.
#[tokio::test]
async fn a_time_zone_that_nobody_knows_is_refused_by_name() {
    use arrow::datatypes::TimeUnit;

    let lake = EntryLake::new(Arc::new(InMemory::new()));
    let kind = |zone: &str| DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()));
    let rows = |kind: DataType| Rows {
        schema: Arc::new(Schema::new(vec![Field::new("at", kind, true)])),
        stream: stream::empty().boxed(),
    };
    for zone in ["UTC", "Europe/Paris", "+01:00"] {
        let written = lake.write(&set("g"), rows(kind(zone))).await;
        written.unwrap_or_else(|error| panic!("{zone}: {}", error.chain()));
    }
    for zone in ["Mars/Olympus", "+25:99"] {
        let item = Arc::new(Field::new_list_field(kind(zone), true));
        for kind in [kind(zone), DataType::List(item)] {
            let error = lake.write(&set("g"), rows(kind)).await;
            let error = error.expect_err("refused");
            assert_eq!(error.kind, Kind::Invalid, "{}", error.chain());
            let told = error.chain();
            assert!(told.contains("`at`") && told.contains(zone), "{told}");
        }
    }
}

#[tokio::test]
async fn a_short_file_of_many_bytes_is_read_a_few_at_a_time_or_refused() {
    let lake = EntryLake::new(Arc::new(InMemory::new()));
    let (file, set) = (bomb(), set("g"));
    assert!(file.len() < 1 << 20, "{}", file.len());
    let stored = lake.receive(&set, pieces(&file, 60_000), 1 << 30).await;
    let stored = stored.expect("its footer says how much it is");
    assert_eq!(stored.rows, 600);
    assert_eq!(stored.schema.field(0).data_type(), &DataType::Utf8);
    let read = lake.read(&set, stored.bytes).await.expect("opened");
    let most = read
        .stream
        .try_fold((0, 0), |(rows, most), batch| async move {
            let rows = rows + batch.num_rows();
            Ok((rows, most.max(batches::bytes(&batch))))
        });
    let (rows, most) = most.await.expect("read");
    assert_eq!(rows, 600);
    assert!(most <= 3 * batches::BYTES, "{most}");
    let untold = refooted(&file, untold);
    let error = lake
        .receive(&self::set("h"), pieces(&untold, 60_000), 1 << 30)
        .await
        .expect_err("it would be a batch of 300 MB");
    assert_eq!(error.kind, Kind::Invalid, "{}", error.chain());
    assert!(error.chain().contains("footer"), "{}", error.chain());
    assert!(error.chain().contains("MiB"), "{}", error.chain());
}
