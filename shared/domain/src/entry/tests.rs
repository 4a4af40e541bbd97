//! What callers get, case by case.

use super::*;

const NOW: Timestamp = Timestamp(1_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

fn content(expires_in: Option<i64>) -> Content {
    Content {
        generation: String::from("g"),
        created_at: Timestamp(NOW.0 - 60_000_000),
        expires_at: expires_in.map(|seconds| Timestamp(NOW.0 + seconds * 1_000_000)),
        rows: 0,
        bytes: 0,
        inline: None,
        columns: Vec::new(),
        watermarks: BTreeMap::new(),
    }
}

fn lease(deadline_in: i64, resting: bool) -> Lease {
    Lease {
        token: String::from("t"),
        holder: String::from("somebody"),
        since: NOW,
        deadline: Timestamp(NOW.0 + deadline_in),
        spec: Spec::default(),
        resting,
    }
}

#[test]
fn an_entry_is_expired_at_its_very_expiry() {
    let at = |seconds: Option<i64>| freshness(&content(seconds), None, None, DAY, NOW);
    assert_eq!(at(None), Freshness::Fresh);
    assert_eq!(at(Some(1)), Freshness::Fresh);
    assert_eq!(at(Some(0)), Freshness::Stale);
    assert_eq!(at(Some(-86_399)), Freshness::Stale);
    assert_eq!(at(Some(-86_400)), Freshness::Gone);
    // A caller who asks for less than the entry was built for is asked for less.
    let asked = |seconds| {
        freshness(
            &content(None),
            Some(Duration::from_secs(seconds)),
            None,
            DAY,
            NOW,
        )
    };
    assert_eq!(asked(61), Freshness::Fresh);
    assert_eq!(asked(60), Freshness::Stale);
}

#[test]
fn an_entry_is_stale_exactly_when_a_table_has_moved() {
    let table: TableName = "gold.revenue".parse().expect("a name");
    let position = |commits| Position {
        sequence: 7,
        commits,
    };
    let read = Content {
        watermarks: [(table.clone(), position(2))].into(),
        ..content(None)
    };
    let against = |commits| {
        let heads = [(table.clone(), position(commits))].into();
        freshness(&read, None, Some(&heads), DAY, NOW)
    };
    assert_eq!(against(2), Freshness::Fresh);
    assert_eq!(against(3), Freshness::Stale);
    assert_eq!(
        freshness(&read, None, Some(&BTreeMap::new()), DAY, NOW),
        Freshness::Stale
    );
    assert_eq!(freshness(&read, None, None, DAY, NOW), Freshness::Fresh);
}

#[test]
fn decisions() {
    use Freshness::{Fresh, Gone, Stale};
    let (free, held, over, rests) = (
        None,
        Some(lease(1, false)),
        Some(lease(0, false)),
        Some(lease(1, true)),
    );
    let wait = Decision::Wait {
        until: Timestamp(NOW.0 + 1),
    };
    let (build, behind) = (
        Decision::Stale { build: true },
        Decision::Stale { build: false },
    );
    for (fresh, mode, lease, expected) in [
        (Some(Fresh), Mode::Swr, &free, Decision::Hit),
        (Some(Fresh), Mode::Strict, &held, Decision::Hit),
        (Some(Stale), Mode::Swr, &free, build),
        (Some(Stale), Mode::Swr, &held, behind),
        (Some(Stale), Mode::Swr, &over, build),
        (Some(Stale), Mode::Swr, &rests, behind),
        (Some(Stale), Mode::Strict, &free, Decision::Build),
        (Some(Stale), Mode::Strict, &held, wait),
        (Some(Stale), Mode::Strict, &rests, Decision::Build),
        (Some(Gone), Mode::Swr, &free, Decision::Build),
        (None, Mode::Swr, &free, Decision::Build),
        (None, Mode::Swr, &held, wait),
        // A deadline of now is over now.
        (None, Mode::Strict, &over, Decision::Build),
    ] {
        let decided = decide(fresh, lease.as_ref(), mode, NOW);
        assert_eq!(decided, expected, "{fresh:?} {mode:?} {lease:?}");
    }
}

#[test]
fn a_payload_rides_inline_up_to_its_length_as_text() {
    assert_eq!(inline_length(3), 4);
    assert_eq!(inline_length(4), 8);
    assert!(rides_inline(300, 500, 100, 400));
    assert!(!rides_inline(301, 500, 100, 400));
    // The item has to hold it whatever the limit says.
    assert!(!rides_inline(300_000, 500, 100, u64::MAX));
}

#[test]
fn an_id_is_a_fingerprint_and_perhaps_a_tenant() {
    let print = "ab".repeat(32);
    let id: EntryId = format!("{print}@shop-1").parse().expect("an id");
    assert_eq!(id.tenant(), Some("shop-1"));
    assert_eq!(id.to_string(), format!("{print}@shop-1"));
    for bad in [
        &print[1..],
        "x",
        &format!("{print}@"),
        &format!("{print}@A"),
        &format!("{print}@a/b"),
    ] {
        assert!(bad.parse::<EntryId>().is_err(), "{bad}");
    }
}

#[test]
fn the_sweep_leaves_what_may_still_be_served() {
    let summary = |mode, seconds: i64| Summary {
        expires_at: Some(Timestamp(NOW.0 - seconds * 1_000_000)),
        ..Summary::from(&Row {
            born: String::new(),
            spec: Spec {
                mode,
                ..Spec::default()
            },
            status: Status::Ready(content(None)),
        })
    };
    assert!(is_due(&summary(Mode::Strict, 0), DAY, NOW));
    assert!(!is_due(&summary(Mode::Swr, 0), DAY, NOW));
    assert!(is_due(&summary(Mode::Swr, 86_400), DAY, NOW));
}
