use arrow::array::{
    ArrayRef, Decimal128Array, Float64Array, Int64Array, ListArray, StringArray, UInt64Array,
    UnionArray,
};
use arrow::datatypes::Int64Type;
use futures::{TryStreamExt, executor::block_on};

use super::*;

fn batch() -> RecordBatch {
    let list =
        ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), Some(2)]), None]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "id",
            Arc::new(Int64Array::from(vec![9_007_199_254_740_993, i64::MIN])),
        ),
        (
            "id",
            Arc::new(UInt64Array::from(vec![Some(u64::MAX), None])),
        ),
        (
            "d",
            Arc::new(
                Decimal128Array::from(vec![1_234_567_890_123_456_789_012_345, 5])
                    .with_precision_and_scale(38, 2)
                    .expect("fits"),
            ),
        ),
        ("f", Arc::new(Float64Array::from(vec![f64::NAN, 0.1]))),
        (
            "s",
            Arc::new(StringArray::from(vec![Some("a \"b\"\n"), None])),
        ),
        ("l", Arc::new(list)),
    ];
    let fields: Vec<Field> = columns
        .iter()
        .map(|(n, c)| Field::new(*n, c.data_type().clone(), true))
        .collect();
    let arrays = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("a batch")
}

fn encoded(format: Format, batches: Vec<RecordBatch>) -> Vec<u8> {
    let rows = Rows {
        schema: batch().schema(),
        stream: stream::iter(batches.into_iter().map(Ok)).boxed(),
    };
    let chunks: Vec<Bytes> = block_on(encode(rows, format).try_collect()).expect("encodes");
    chunks.concat()
}

#[test]
fn json_keeps_every_digit_and_every_column() {
    let text = String::from_utf8(encoded(Format::Json, vec![batch()])).expect("text");
    assert!(text.contains(r#""rows":[{"id":9007199254740993,"id_2":18446744073709551615,"d":12345678901234567890123.45,"f":null,"s":"a \"b\"\n","l":[1,2]}"#), "{text}");
    assert!(
        text.contains(
            r#"{"id":-9223372036854775808,"id_2":null,"d":0.05,"f":0.1,"s":null,"l":null}]"#
        ),
        "{text}"
    );
    assert!(
        text.contains(r#"{"name":"d","type":"DECIMAL(38,2)"}"#),
        "{text}"
    );
    assert!(text.ends_with(",\"row_count\":2}\n"), "{text}");
}

#[test]
fn no_rows_are_still_an_answer() {
    let json: serde_json::Value =
        serde_json::from_slice(&encoded(Format::Json, vec![])).expect("JSON");
    assert_eq!(json["rows"], json!([]));
    assert_eq!(encoded(Format::Csv, vec![]), b"id,id_2,d,f,s,l\n");
}

#[test]
fn csv_has_one_header_however_many_batches() {
    let text = String::from_utf8(encoded(Format::Csv, vec![batch(), batch()])).expect("text");
    assert_eq!(text.matches("id,id_2").count(), 1, "{text}");
    assert!(text.contains("9007199254740993,18446744073709551615,12345678901234567890123.45,NaN,\"a \"\"b\"\"\n\",\"[1, 2]\"\n"), "{text}");
}

#[test]
fn arrow_rows_come_back_as_they_were() {
    let bytes = encoded(Format::Arrow, vec![batch()]);
    let reader =
        arrow::ipc::reader::StreamReader::try_new(bytes.as_slice(), None).expect("a stream");
    assert_eq!(
        reader
            .map(|batch| batch.expect("a batch"))
            .collect::<Vec<_>>(),
        [batch()]
    );
}

#[test]
fn json_values_of_any_kind_are_written_as_they_are() {
    let columns: [(&str, ArrayRef); 4] = [
        ("int", Arc::new(Int64Array::from(vec![7, 0, 0, 0]))),
        (
            "str",
            Arc::new(StringArray::from(vec!["", "a \"b\"", "", ""])),
        ),
        (
            "object",
            Arc::new(StringArray::from(vec!["", "", r#"{"a":[1]}"#, ""])),
        ),
        (
            "float",
            Arc::new(Float64Array::from(vec![0.0, 0.0, 0.0, f64::INFINITY])),
        ),
    ];
    let fields = columns
        .iter()
        .map(|(n, c)| Field::new(*n, c.data_type().clone(), true));
    let fields = arrow::datatypes::UnionFields::try_new([0, 1, 2, 3], fields).expect("fields");
    let arrays = columns
        .iter()
        .map(|(_, column)| Arc::clone(column))
        .collect();
    let union =
        UnionArray::try_new(fields, vec![0, 1, 2, 3].into(), None, arrays).expect("a union");
    let batch = RecordBatch::try_from_iter([("j", Arc::new(union) as ArrayRef)]).expect("a batch");
    let rows = Rows {
        schema: batch.schema(),
        stream: stream::iter([Ok(batch)]).boxed(),
    };
    let chunks: Vec<Bytes> = block_on(encode(rows, Format::Json).try_collect()).expect("encodes");
    let json: serde_json::Value = serde_json::from_slice(&chunks.concat()).expect("JSON");
    assert_eq!(
        json["rows"],
        json!([{ "j": 7 }, { "j": "a \"b\"" }, { "j": { "a": [1] } }, { "j": null }])
    );
    assert_eq!(json["columns"][0]["type"], "JSON");
}

/// The writers say that they failed in the place of the value, where a reader takes it for the value.
#[test]
fn moments_in_no_calendar_are_refused_by_name_and_not_written_as_something_else() {
    use arrow::array::{ListArray, TimestampSecondArray};
    use arrow::buffer::OffsetBuffer;

    let moments: ArrayRef = Arc::new(TimestampSecondArray::from(vec![
        Some(0),
        None,
        Some(9_000_000_000_000),
    ]));
    let item = Arc::new(Field::new_list_field(moments.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths([3]);
    let list: ArrayRef = Arc::new(ListArray::new(item, offsets, Arc::clone(&moments), None));
    let zoned = |value, zone| -> ArrayRef {
        Arc::new(TimestampSecondArray::from(vec![Some(value)]).with_timezone(zone))
    };
    let edges = [
        zoned(8_210_266_876_799, "+14:00"),
        zoned(-8_334_601_228_800, "-12:00"),
    ];
    for column in [moments.clone(), list].into_iter().chain(edges) {
        let batch = RecordBatch::try_from_iter([("at", column)]).expect("a batch");
        for format in [Format::Json, Format::Csv] {
            let rows = Rows {
                schema: batch.schema(),
                stream: stream::iter([Ok(batch.clone())]).boxed(),
            };
            let written: Result<Vec<Bytes>> = block_on(encode(rows, format).try_collect());
            let error = written.expect_err("no calendar has it");
            assert_eq!(error.kind, Kind::Invalid, "{}", error.chain());
            assert!(error.chain().contains("column `at`"), "{}", error.chain());
            let far = ["9000000000000", "8210266876799", "-8334601228800"];
            assert!(
                far.iter().any(|one| error.chain().contains(one)),
                "{}",
                error.chain()
            );
        }
    }
    let early = moments.slice(0, 2);
    let batch = RecordBatch::try_from_iter([("at", early)]).expect("a batch");
    let rows = Rows {
        schema: batch.schema(),
        stream: stream::iter([Ok(batch)]).boxed(),
    };
    let chunks: Vec<Bytes> = block_on(encode(rows, Format::Json).try_collect()).expect("encodes");
    let text = String::from_utf8(chunks.concat()).expect("text");
    assert!(
        text.contains(r#""rows":[{"at":"1970-01-01T00:00:00"},{"at":null}]"#),
        "{text}"
    );
}

#[test]
fn keys_of_maps_are_texts_in_json_whatever_they_are() {
    use arrow::array::{Int32Builder, MapBuilder, StringBuilder};

    let mut map = MapBuilder::new(None, Int32Builder::new(), StringBuilder::new());
    map.keys().append_value(7);
    map.values().append_value("a \"b\"");
    map.append(true).expect("an entry");
    map.append(false).expect("none");
    let map: ArrayRef = Arc::new(map.finish());
    let batch = RecordBatch::try_from_iter([("m", map)]).expect("a batch");
    let rows = Rows {
        schema: batch.schema(),
        stream: stream::iter([Ok(batch)]).boxed(),
    };
    let chunks: Vec<Bytes> = block_on(encode(rows, Format::Json).try_collect()).expect("encodes");
    let text = String::from_utf8(chunks.concat()).expect("text");
    assert!(
        text.contains(r#""rows":[{"m":{"7":"a \"b\""}},{"m":null}]"#),
        "{text}"
    );
}
