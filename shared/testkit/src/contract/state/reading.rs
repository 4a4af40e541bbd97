//! Reads of many, spans and pages.

use ports::state::{Expect, Key, Span, query_all};

use super::{Store, put, transact};

async fn sorts(state: &Store, span: &Span) -> Vec<String> {
    let items = state.query(span).await.expect("the store answers a query");
    assert!(
        items
            .iter()
            .all(|item| item.key.partition == span.partition)
    );
    items.into_iter().map(|item| item.key.sort).collect()
}

async fn fill(state: &Store, place: &str, sorts: &[&str]) {
    let writes = sorts
        .iter()
        .map(|sort| put(&Key::new(place, *sort), sort, Expect::Any));
    assert!(transact(state, writes.collect()).await.is_committed());
}

fn span(place: &str, from: &str, until: Option<&str>) -> Span {
    let until = until.map(str::to_owned);
    Span {
        partition: place.to_owned(),
        from: from.to_owned(),
        until,
        reverse: false,
        limit: 100,
    }
}

pub(super) async fn many_items_are_answered_in_the_order_asked(state: &Store, place: &str) {
    fill(state, place, &["a", "b", "c"]).await;
    let asked = ["c", "x", "a", "c", "b"].map(|sort| Key::new(place, sort));
    let items = state
        .get_many(&asked)
        .await
        .expect("the store answers a read");
    let found: Vec<_> = items
        .iter()
        .map(|i| i.as_ref().map(|i| i.key.sort.as_str()))
        .collect();
    assert_eq!(found, [Some("c"), None, Some("a"), Some("c"), Some("b")]);
    assert_eq!(
        state.get_many(&[]).await.expect("the store answers a read"),
        []
    );
}

pub(super) async fn a_span_is_in_bytewise_order(state: &Store, place: &str) {
    let mixed = [
        "b",
        "a",
        "ä",
        "B",
        "a\0",
        "aa",
        "10",
        "9",
        "\u{FFFF}",
        "\u{10000}",
    ];
    fill(state, place, &mixed).await;
    let found = sorts(state, &span(place, "", None)).await;
    assert_eq!(
        found,
        [
            "10",
            "9",
            "B",
            "a",
            "a\0",
            "aa",
            "b",
            "ä",
            "\u{FFFF}",
            "\u{10000}"
        ]
    );
}

pub(super) async fn a_prefix_span_holds_just_the_prefix(state: &Store, place: &str) {
    let all = [
        "consumed",
        "consumed#",
        "consumed#a",
        "consumed#z",
        "consumee",
        "control",
    ];
    fill(state, place, &all).await;
    let found = sorts(state, &Span::prefix(place, "consumed#", 10)).await;
    assert_eq!(found, ["consumed#", "consumed#a", "consumed#z"]);
    assert_eq!(
        sorts(state, &Span::prefix(place, "", 10)).await.len(),
        all.len()
    );
}

pub(super) async fn a_span_starts_inclusive_and_ends_exclusive(state: &Store, place: &str) {
    fill(state, place, &["a", "b", "c", "d"]).await;
    assert_eq!(sorts(state, &span(place, "b", Some("d"))).await, ["b", "c"]);
    assert_eq!(sorts(state, &span(place, "bb", None)).await, ["c", "d"]);
    let reverse = Span {
        reverse: true,
        ..span(place, "b", Some("d"))
    };
    assert_eq!(sorts(state, &reverse).await, ["c", "b"]);
}

pub(super) async fn a_reverse_span_starts_at_the_end(state: &Store, place: &str) {
    fill(state, place, &["a", "b", "c"]).await;
    let last = Span {
        reverse: true,
        limit: 1,
        ..span(place, "", None)
    };
    assert_eq!(sorts(state, &last).await, ["c"]);
    let two = Span { limit: 2, ..last };
    assert_eq!(sorts(state, &two).await, ["c", "b"]);
}

pub(super) async fn pages_cover_a_span_once(state: &Store, place: &str) {
    let names: Vec<String> = (0..25).map(|i| format!("advance#{i:020}")).collect();
    fill(
        state,
        place,
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
    )
    .await;
    for limit in [1, 5, 24, 25, 26] {
        for reverse in [false, true] {
            let span = Span {
                reverse,
                ..Span::prefix(place, "advance#", limit)
            };
            let items = query_all(state.as_ref(), span)
                .await
                .expect("the store answers a query");
            let mut found: Vec<_> = items.into_iter().map(|item| item.key.sort).collect();
            if reverse {
                found.reverse();
            }
            assert_eq!(found, names, "limit {limit}, reverse {reverse}");
        }
    }
}

pub(super) async fn an_empty_span_is_empty(state: &Store, place: &str) {
    assert!(sorts(state, &span(place, "", None)).await.is_empty());
    fill(state, place, &["a", "b"]).await;
    assert!(sorts(state, &span(place, "c", None)).await.is_empty());
    assert!(sorts(state, &span(place, "b", Some("b"))).await.is_empty());
    assert!(sorts(state, &span(place, "b", Some("a"))).await.is_empty());
    assert!(
        sorts(
            state,
            &Span {
                limit: 0,
                ..span(place, "", None)
            }
        )
        .await
        .is_empty()
    );
}
