//! Vectors, against a plain comparison of all.

use super::*;

#[tokio::test]
async fn few_vectors_are_compared_exactly_by_every_metric() {
    let desk = Desk::new();
    let mut dice = Dice(1);
    let all = dice.clumps(3_000, 40, 37);
    for metric in [Metric::Cosine, Metric::Dot, Metric::L2] {
        let index = desk
            .build(plan(metric, 50_000), vec![vectors(&all)])
            .await
            .expect("builds");
        for trial in 0..20 {
            let query = dice.vector(37);
            let among: Option<RoaringBitmap> =
                (trial % 2 == 1).then(|| (0..3_000).filter(|row| row % 7 == trial % 7).collect());
            let mut sought = near(&query, 10);
            sought.among = among.clone();
            let hits = desk.indexes.near(&index, &sought).await.expect("searches");
            let plain = plainly(metric, &all, &query, among.as_ref());
            assert_eq!(hits.len(), 10);
            for (hit, (row, score)) in hits.iter().zip(&plain) {
                assert!(
                    (f64::from(hit.score) - score).abs() < 1e-3,
                    "{metric:?}: {hit:?}, not {score}"
                );
                assert!(hit.row == *row || (f64::from(hit.score) - score).abs() < 1e-5);
            }
        }
        desk.indexes.forget();
    }
}

#[tokio::test]
async fn vectors_that_differ_by_little_are_told_apart() {
    let desk = Desk::new();
    let base = Dice(3).vector(64);
    let all: Vec<Vec<f32>> = (0..2_000_u16)
        .map(|at| {
            let mut one = base.clone();
            one[usize::from(at) % 64] += f32::from(at + 1) * 1e-3;
            one
        })
        .collect();
    let index = desk
        .build(plan(Metric::L2, 50_000), vec![vectors(&all)])
        .await
        .expect("builds");
    let hits = desk
        .indexes
        .near(&index, &near(&base, 5))
        .await
        .expect("searches");
    assert_eq!(
        hits.iter().map(|hit| hit.row).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4]
    );
}

#[tokio::test]
async fn many_vectors_are_found_in_few_cells() {
    let desk = Desk::new();
    let mut dice = Dice(7);
    let all = dice.clumps(20_000, 200, 32);
    for metric in [Metric::Cosine, Metric::L2, Metric::Dot] {
        let index = desk
            .build(plan(metric, 1_000), vec![vectors(&all)])
            .await
            .expect("builds");
        desk.indexes.forget();
        desk.objects.take();
        let (mut found, mut wanted) = (0, 0);
        for trial in 0..40 {
            let query: Vec<f32> = all[trial * 479]
                .iter()
                .map(|x| x + dice.next() * 0.1)
                .collect();
            let hits = desk
                .indexes
                .near(&index, &near(&query, 10))
                .await
                .expect("searches");
            if trial == 0 {
                let cold = desk.objects.take();
                println!("{metric:?}, cold: {cold:?} of {} bytes", index.bytes);
                // The tail, the cells, and what is looked at whole.
                let most = if metric == Metric::Dot { 16 } else { 8 };
                assert!(cold.requests() <= most, "{cold:?}");
            }
            let plain = plainly(metric, &all, &query, None);
            let best: Vec<u32> = plain.iter().take(10).map(|(row, _)| *row).collect();
            found += hits.iter().filter(|hit| best.contains(&hit.row)).count();
            wanted += best.len();
        }
        println!("{metric:?}: {found} of {wanted}");
        assert!(
            found * 100 >= wanted * 95,
            "{metric:?}: {found} of {wanted}"
        );
        // With a filter the answer is full, and with few rows left it is exact.
        for keep in [4_999_u32, 97, 3] {
            let among: RoaringBitmap = (0..20_000).filter(|row| row % keep == 0).collect();
            let mut sought = near(&all[5], 10);
            sought.among = Some(among.clone());
            let hits = desk.indexes.near(&index, &sought).await.expect("searches");
            assert_eq!(hits.len() as u64, among.len().min(10), "{keep}");
            assert!(hits.iter().all(|hit| among.contains(hit.row)));
            if among.len() < 4_096 {
                let plain = plainly(metric, &all, &all[5], Some(&among));
                for (hit, (_, score)) in hits.iter().zip(&plain) {
                    assert!(
                        (f64::from(hit.score) - score).abs() < 1e-3,
                        "{keep}: {hit:?}, not {score}"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn vectors_that_are_none_are_refused() {
    let desk = Desk::new();
    let index = desk
        .build(
            plan(Metric::Cosine, 9),
            vec![vectors(&[vec![1.0, 0.0], vec![0.0, 0.0], vec![0.0, 1.0]])],
        )
        .await
        .expect("builds");
    // What has no direction is never near.
    let hits = desk
        .indexes
        .near(&index, &near(&[1.0, 0.1], 9))
        .await
        .expect("searches");
    assert_eq!(hits.iter().map(|hit| hit.row).collect::<Vec<_>>(), [0, 2]);
    for (vector, told) in [
        (vec![1.0], "1 numbers"),
        (vec![], "0 numbers"),
        (vec![f32::NAN, 1.0], "none"),
        (vec![f32::INFINITY, 1.0], "none"),
        (vec![0.0, 0.0], "zero"),
    ] {
        let error = desk
            .indexes
            .near(&index, &near(&vector, 1))
            .await
            .expect_err(told);
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.chain().contains(told), "{}", error.chain());
    }
    let uneven = ListArray::from_iter_primitive::<Float32Type, _, _>([
        Some(vec![Some(1.0), Some(2.0)]),
        None,
        Some(vec![Some(1.0)]),
    ]);
    let holes = ListArray::from_iter_primitive::<Float32Type, _, _>([Some(vec![Some(1.0), None])]);
    let columns: [(ArrayRef, &str); 5] = [
        (Arc::new(uneven), "row 2"),
        (Arc::new(holes), "NULL"),
        (Arc::new(Float64Array::from(vec![1.0])), "Float64"),
        (vectors(&[vec![1.0, f32::NAN]]).column(0).clone(), "row 0"),
        (Arc::new(StringArray::from(vec!["a"])), "Utf8"),
    ];
    for (column, told) in columns {
        let batch = RecordBatch::try_from_iter([("v", column)]).expect("is a batch");
        let error = desk
            .build(plan(Metric::L2, 9), vec![batch])
            .await
            .expect_err(told);
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.chain().contains(told), "{}", error.chain());
    }
}
