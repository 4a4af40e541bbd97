//! Sums of products, written so that the compiler makes vector instructions of them.

/// Numbers at once.
const LANES: usize = 16;

/// The inner product.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a
        .remainder()
        .iter()
        .zip(b.remainder())
        .map(|(x, y)| x * y)
        .sum();
    for (x, y) in a.zip(b) {
        for lane in 0..LANES {
            sums[lane] += x[lane] * y[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// The inner product of signed bytes with integers. Exact as long as the integers are small enough (see [`whole`]).
pub(super) fn bytes_dot(a: &[u8], b: &[i16]) -> i32 {
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: i32 = a
        .remainder()
        .iter()
        .zip(b.remainder())
        .map(|(x, y)| signed(*x) * i32::from(*y))
        .sum();
    let mut sums = [0_i32; LANES];
    for (x, y) in a.zip(b) {
        for lane in 0..LANES {
            sums[lane] += signed(x[lane]) * i32::from(y[lane]);
        }
    }
    sums.iter().sum::<i32>() + rest
}

fn signed(byte: u8) -> i32 {
    i32::from(byte.cast_signed())
}

/// Numbers as whole ones and what one of these stands for, so that no product with signed bytes overflows 32 bits.
pub(super) fn whole(numbers: &[f32]) -> (Vec<i16>, f32) {
    let room = i32::MAX / 128 / i32::try_from(numbers.len().max(1)).unwrap_or(i32::MAX);
    #[expect(clippy::cast_precision_loss, reason = "at most 4095")]
    let most = room.clamp(127, 4_095) as f32;
    let largest = numbers.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    if largest == 0.0 {
        return (vec![0; numbers.len()], 1.0);
    }
    let step = largest / most;
    #[expect(clippy::cast_possible_truncation, reason = "at most 4095 by the step")]
    let whole = numbers.iter().map(|x| (x / step).round() as i16);
    (whole.collect(), step)
}

/// The square of the distance.
pub(super) fn distance2(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f32 = a
        .remainder()
        .iter()
        .zip(b.remainder())
        .map(|(x, y)| (x - y) * (x - y))
        .sum();
    for (x, y) in a.zip(b) {
        for lane in 0..LANES {
            let gap = x[lane] - y[lane];
            sums[lane] += gap * gap;
        }
    }
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_to_multiply_agree() {
        for length in [1, 3, 4, 16, 17, 100] {
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let number = |at: usize| ((at * 37 % 19) as f32 - 9.0) / 4.0;
            let a: Vec<f32> = (0..length).map(number).collect();
            let b: Vec<f32> = (0..length).map(|at| number(at + 5)).collect();
            let plain: f32 = a.iter().zip(&b).map(|(x, y)| x * y).sum();
            assert!((dot(&a, &b) - plain).abs() < 1e-3);
            let apart: f32 = a.iter().zip(&b).map(|(x, y)| (x - y).powi(2)).sum();
            assert!((distance2(&a, &b) - apart).abs() < 1e-3);
            let bytes: Vec<u8> = (0..length)
                .map(|at| (at * 91 % 256).to_le_bytes()[0])
                .collect();
            let (ints, _) = whole(&b);
            let sum: i32 = bytes
                .iter()
                .zip(&ints)
                .map(|(x, y)| signed(*x) * i32::from(*y))
                .sum();
            assert_eq!(bytes_dot(&bytes, &ints), sum);
        }
        assert_eq!(whole(&[0.0, 0.0]).0, [0, 0]);
    }
}
