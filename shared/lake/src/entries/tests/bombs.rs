//! Files that hold far more than their length says.

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

/// The file with a footer that does not tell how long its texts are, as older writers leave it.
fn untold(file: &[u8]) -> Vec<u8> {
    use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter};

    let whole = Bytes::copy_from_slice(file);
    let footer = ParquetMetaDataReader::new().parse_and_finish(&whole);
    let footer = footer.expect("a footer");
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
    let footer = ParquetMetaData::new(footer.file_metadata().clone(), groups.collect());
    let (before, end) = file.split_at(file.len() - 8);
    let length = u32::from_le_bytes(end[..4].try_into().expect("four bytes"));
    let mut told = before[..before.len() - usize::try_from(length).expect("small")].to_vec();
    let mut written = Vec::new();
    let writer = ParquetMetaDataWriter::new(&mut written, &footer);
    writer.finish().expect("written");
    told.extend(written);
    told
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
    let untold = untold(&file);
    let error = lake
        .receive(&self::set("h"), pieces(&untold, 60_000), 1 << 30)
        .await
        .expect_err("it would be a batch of 300 MB");
    assert_eq!(error.kind, Kind::Invalid, "{}", error.chain());
    assert!(error.chain().contains("footer"), "{}", error.chain());
    assert!(error.chain().contains("MiB"), "{}", error.chain());
}
