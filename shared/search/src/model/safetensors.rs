//! The tensors of a static model, in the safetensors format: eight bytes of length, a JSON header, numbers.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Longest header.
const HEADER_MAX: usize = 16 << 20;

/// A vector per token.
pub(super) struct Table {
    /// Numbers of a vector.
    pub(super) length: usize,
    numbers: Vec<f32>,
    /// What each token's vector is multiplied with; empty for none.
    weights: Vec<f32>,
    /// Which vector a token has; empty when its own number says it.
    mapping: Vec<usize>,
}

#[derive(Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

/// Tensors by name, and their bytes.
struct Tensors {
    named: BTreeMap<String, Tensor>,
    bytes: Vec<u8>,
    start: usize,
}

impl Tensors {
    fn read(bytes: Vec<u8>) -> Result<Self, String> {
        let cut = || String::from("it is cut short");
        let length = bytes.first_chunk::<8>().ok_or_else(cut)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > HEADER_MAX {
            return Err(String::from("its header is no header of safetensors"));
        }
        let header = bytes.get(8..8 + length).ok_or_else(cut)?;
        let mut all: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(header).map_err(|error| error.to_string())?;
        all.remove("__metadata__");
        let tensor = |(name, value)| {
            let tensor = serde_json::from_value(value).map_err(|error| format!("{name}: {error}"));
            Ok::<(String, Tensor), String>((name, tensor?))
        };
        Ok(Self {
            named: all.into_iter().map(tensor).collect::<Result<_, _>>()?,
            start: 8 + length,
            bytes,
        })
    }

    fn bytes(&self, tensor: &Tensor) -> Result<&[u8], String> {
        let [from, to] = tensor.data_offsets;
        let range = self.start.checked_add(from).zip(self.start.checked_add(to));
        let bytes = range.and_then(|(from, to)| self.bytes.get(from..to));
        bytes.ok_or_else(|| String::from("it is cut short"))
    }

    /// Numbers of any usual kind.
    fn numbers(&self, name: &str, tensor: &Tensor) -> Result<Vec<f64>, String> {
        let bytes = self.bytes(tensor)?;
        let numbers: Vec<f64> = match tensor.dtype.as_str() {
            "F64" => words(bytes).map(f64::from_le_bytes).collect(),
            "F32" => words(bytes)
                .map(f32::from_le_bytes)
                .map(f64::from)
                .collect(),
            "F16" => words(bytes).map(half).collect(),
            #[expect(clippy::cast_precision_loss, reason = "numbers of tokens are small")]
            "I64" => words(bytes)
                .map(|word| i64::from_le_bytes(word) as f64)
                .collect(),
            "I32" => words(bytes)
                .map(i32::from_le_bytes)
                .map(f64::from)
                .collect(),
            other => {
                return Err(format!(
                    "tensor `{name}` is of {other}, not of F32, F16 or F64"
                ));
            }
        };
        let wanted = tensor
            .shape
            .iter()
            .try_fold(1_usize, |all, one| all.checked_mul(*one));
        match wanted == Some(numbers.len()) {
            true => Ok(numbers),
            false => Err(format!("tensor `{name}` is not of the shape it says")),
        }
    }
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.chunks_exact(N).map(|word| {
        let mut out = [0; N];
        out.copy_from_slice(word);
        out
    })
}

/// A number of 16 bits.
fn half(word: [u8; 2]) -> f64 {
    let bits = u16::from_le_bytes(word);
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from((bits >> 10) & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 => f64::INFINITY,
        _ => (1.0 + fraction / 1_024.0) * 2_f64.powi(exponent - 15),
    }
}

impl Table {
    /// Reads a table: the one tensor of two dimensions.
    pub(super) fn read(bytes: Vec<u8>) -> Result<Self, String> {
        let tensors = Tensors::read(bytes)?;
        let mut tables = tensors
            .named
            .iter()
            .filter(|(_, tensor)| tensor.shape.len() == 2);
        let (Some((name, tensor)), None) = (tables.next(), tables.next()) else {
            return Err(String::from(
                "it has not just one table, a tensor of two dimensions",
            ));
        };
        let length = tensor.shape[1];
        if length == 0 {
            return Err(format!("tensor `{name}` has no columns"));
        }
        let numbers = tensors.numbers(name, tensor)?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "32 bits are what is computed with"
        )]
        let small = |numbers: Vec<f64>| numbers.into_iter().map(|number| number as f32).collect();
        let numbers: Vec<f32> = small(numbers);
        if numbers.iter().any(|number| !number.is_finite()) {
            return Err(format!("tensor `{name}` has a number that is none"));
        }
        let beside = |name: &str| match tensors.named.get(name) {
            Some(tensor) => tensors.numbers(name, tensor),
            None => Ok(Vec::new()),
        };
        let (weights, mapping) = (small(beside("weights")?), beside("mapping")?);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "negative ones become 0, too large ones are refused when they are used"
        )]
        let mapping = mapping.into_iter().map(|row| row as usize).collect();
        Ok(Self {
            length,
            numbers,
            weights,
            mapping,
        })
    }

    fn row(&self, token: u32) -> Option<&[f32]> {
        let token = token as usize;
        let row = match self.mapping.is_empty() {
            true => token,
            false => *self.mapping.get(token)?,
        };
        let start = row.checked_mul(self.length)?;
        self.numbers.get(start..start.checked_add(self.length)?)
    }

    /// Whether a token has a vector.
    pub(super) fn has(&self, token: u32) -> bool {
        self.row(token).is_some()
    }

    /// Adds a token's vector.
    pub(super) fn add(&self, token: u32, sum: &mut [f32]) {
        let weight = match self.weights.is_empty() {
            true => 1.0,
            false => self.weights.get(token as usize).copied().unwrap_or(1.0),
        };
        for (sum, number) in sum.iter_mut().zip(self.row(token).unwrap_or_default()) {
            *sum += number * weight;
        }
    }
}
