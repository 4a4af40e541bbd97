use super::*;

fn sketch(lags: &[u64]) -> Sketch {
    let mut sketch = Sketch::default();
    for lag in lags {
        sketch.note(Duration::from_millis(*lag));
    }
    sketch
}

fn second(n: i64) -> Timestamp {
    Timestamp(n * 1_000_000)
}

#[test]
fn buckets_touch_and_rise() {
    for ms in (0..5_000).chain([1 << 20, u64::MAX / 3, u64::MAX - 1, u64::MAX]) {
        let of = bucket(ms);
        assert!(of <= BUCKET_MAX && highest(of) >= ms, "{ms}");
        if of > 0 {
            assert!(highest(of - 1) < ms, "{ms}");
        }
        if ms < u64::MAX {
            assert!(bucket(ms + 1) >= of, "{ms}");
        }
    }
    assert_eq!(
        (bucket(u64::MAX), highest(BUCKET_MAX)),
        (BUCKET_MAX, u64::MAX)
    );
}

#[test]
fn a_sketch_without_lags_says_nothing() {
    assert_eq!(sketch(&[]).summary(), None);
    assert_eq!(
        sketch(&[7]).summary(),
        Some(Summary {
            count: 1,
            p50_ms: 7,
            p95_ms: 7,
            max_ms: 7
        })
    );
}

#[test]
fn a_stored_sketch_is_short_and_a_broken_one_is_refused() {
    let lags: Vec<u64> = (200..2_000).step_by(2).collect();
    let text = serde_json::to_string(&sketch(&lags)).expect("JSON");
    assert!(text.len() < 400, "{} bytes: {text}", text.len());
    for broken in [
        r#"{"counts":[1],"total_ms":0,"max_ms":0}"#,
        r#"{"counts":[976,1],"total_ms":0,"max_ms":0}"#,
        r#"{"counts":[1,1,18446744073709551615,1],"total_ms":0,"max_ms":0}"#,
    ] {
        assert!(serde_json::from_str::<Sketch>(broken).is_err(), "{broken}");
    }
}

#[test]
fn intervals_turn_into_slots_that_come_round_again() {
    let note =
        |before: Option<&Recent>, at| Recent::after(before, second(at), Duration::from_secs(1));
    let (first, over) = note(None, 10);
    assert!(over.is_empty());
    let (same, over) = note(Some(&first), 59);
    assert!(over.is_empty() && same.minute.lags.count() == 2);
    let (next, over) = note(Some(&same), 60);
    assert_eq!(over, [(Grain::Minute, same.minute)]);
    assert_eq!(
        (next.minute.start, next.minute.lags.count()),
        (second(60), 1)
    );
    assert_eq!(
        (next.quarter.lags.count(), next.count, next.total_ms),
        (3, 3, 3_000)
    );
    // Another process, whose clock is behind.
    let (behind, over) = note(Some(&next), 58);
    assert!(over.is_empty() && behind.minute.start == second(60));
    let (_, over) = note(Some(&behind), 900);
    assert_eq!(
        over.iter().map(|(grain, _)| *grain).collect::<Vec<_>>(),
        [Grain::Minute, Grain::Quarter]
    );
    assert_eq!(Grain::Minute.slot(second(60)), 1);
    assert_eq!(Grain::Minute.slot(second(3_600)), 0);
    assert_eq!(Grain::Quarter.slot(second(86_400 + 900)), 1);
}

#[test]
fn history_leaves_out_what_is_too_old() {
    let interval = |at| Interval {
        start: second(at),
        lags: sketch(&[5]),
    };
    let recent = Recent {
        minute: interval(7_260),
        quarter: interval(7_200),
        count: 1,
        total_ms: 5,
    };
    let kept = [7_200, 3_660, 3_600].map(interval);
    let found = history(Grain::Minute, kept, Some(&recent), second(7_265));
    let starts: Vec<_> = found.iter().map(|interval| interval.start).collect();
    assert_eq!(starts, [3_660, 7_200, 7_260].map(second));
}

#[test]
fn a_slow_refresh_is_forgotten_little_by_little() {
    assert_eq!(slow_ms(None, 40), 40);
    assert_eq!(slow_ms(Some(800), 40), 700);
    assert_eq!(slow_ms(Some(800), 900), 900);
    let settled = (0..100).fold(1_000, |slow, _| slow_ms(Some(slow), 0));
    assert_eq!(settled, 0);
}

/// Numbers that follow from a seed, of all sizes.
fn numbers(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}

/// The promise of the module: never too low, less than a sixteenth too high, whatever was merged how.
#[test]
fn quantiles_keep_their_bounds() {
    for seed in 0..2_000 {
        let mut draw = numbers(seed);
        let mut next = |below: u64| draw.next().unwrap_or(0) % below;
        let size = 1 + usize::try_from(next(200)).expect("small");
        let lags: Vec<u64> = (0..size)
            .map(|_| match next(3) {
                0 => next(200),
                1 => next(100_000),
                _ => next(u64::MAX),
            })
            .collect();
        let (cut, percent) = (
            usize::try_from(next(200)).expect("small") % size,
            1 + next(100),
        );
        let mut merged = sketch(&lags[..cut]);
        merged.merge(&sketch(&lags[cut..]));
        let whole = sketch(&lags);
        assert_eq!(
            (&merged.counts, merged.max_ms),
            (&whole.counts, whole.max_ms),
            "{seed}"
        );
        let text = serde_json::to_string(&whole).expect("JSON");
        let read: Sketch = serde_json::from_str(&text).expect("a sketch");
        assert_eq!(read, whole, "{seed}");
        let mut sorted = lags;
        sorted.sort_unstable();
        let rank = (sorted.len() * usize::try_from(percent).expect("small"))
            .div_ceil(100)
            .max(1);
        let truth = sorted[rank - 1];
        let said = whole.quantile_ms(percent).expect("lags");
        assert!(said >= truth, "seed {seed}: {said} is below {truth}");
        assert!(
            said - truth <= truth / 16,
            "seed {seed}: {said} is far above {truth}"
        );
        assert_eq!(whole.count(), sorted.len() as u64, "{seed}");
        assert_eq!(
            whole.summary().map(|s| s.max_ms),
            sorted.last().copied(),
            "{seed}"
        );
    }
}
