//! A small local model: a vector per token, and of a text the mean of its tokens' vectors, as `model2vec` publishes them.
//!
//! Two files in a folder: `tokenizer.json`, of the WordPiece kind, and `model.safetensors` with one table of 32-bit numbers (a
//! second tensor `weights`, if there, weighs the tokens; `mapping`, if there, says which row of the table a token has). Nothing
//! is fetched: the folder is the user's.

mod safetensors;
mod wordpiece;

use std::{fs, path::Path, sync::Arc};

use async_trait::async_trait;
use ports::{Embedder, Error, Kind, Result};

use wordpiece::Tokenizer;

/// Tokens of a text that count; what follows them does not.
const TOKENS_MAX: usize = 512;

/// A model in memory.
#[derive(Clone)]
pub struct StaticModel(Arc<Model>);

struct Model {
    tokenizer: Tokenizer,
    table: safetensors::Table,
}

impl std::fmt::Debug for StaticModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StaticModel")
            .field("length", &self.0.table.length)
            .finish_non_exhaustive()
    }
}

impl StaticModel {
    /// Reads a model from its folder.
    ///
    /// # Errors
    /// `Invalid` when a file is not there, or is of a kind that is not understood.
    pub fn open(folder: &Path) -> Result<Self> {
        let read = |file: &str| {
            let path = folder.join(file);
            fs::read(&path).map_err(|error| {
                Error::new(Kind::Invalid, "open model", path.display()).because(error)
            })
        };
        let invalid = |file: &str, why: String| {
            Error::new(Kind::Invalid, "open model", folder.join(file).display()).because(why)
        };
        let tokenizer = Tokenizer::read(&read("tokenizer.json")?)
            .map_err(|why| invalid("tokenizer.json", why))?;
        let table = safetensors::Table::read(read("model.safetensors")?)
            .map_err(|why| invalid("model.safetensors", why))?;
        if let Some(token) = tokenizer.largest().filter(|token| !table.has(*token)) {
            let why = format!("it has no vector for token {token}, which the tokenizer knows");
            return Err(invalid("model.safetensors", why));
        }
        Ok(Self(Arc::new(Model { tokenizer, table })))
    }
}

impl Model {
    fn embed(&self, text: &str) -> Vec<f32> {
        let mut sum = vec![0.0_f32; self.table.length];
        let mut count = 0_u16;
        for token in self.tokenizer.tokens(text).take(TOKENS_MAX) {
            self.table.add(token, &mut sum);
            count += 1;
        }
        if count > 0 {
            let count = f32::from(count);
            sum.iter_mut().for_each(|number| *number /= count);
        }
        let length = sum.iter().map(|number| number * number).sum::<f32>().sqrt();
        if length > 0.0 {
            sum.iter_mut().for_each(|number| *number /= length);
        }
        sum
    }
}

#[async_trait]
impl Embedder for StaticModel {
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        let (model, texts) = (self.0.clone(), texts.to_vec());
        let work = tokio::task::spawn_blocking(move || {
            texts.iter().map(|text| model.embed(text)).collect()
        });
        work.await
            .map_err(|error| Error::new(Kind::Unavailable, "embed", "text").because(error))
    }

    fn batch(&self) -> usize {
        1_024
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A model of a few words: `[UNK]`, `red`, `green`, `##ish`, `,`.
    fn written(folder: &Path, kind: &str) {
        let words = ["[UNK]", "red", "green", "##ish", ","];
        let vocabulary: BTreeMap<&str, usize> = words.into_iter().zip(0..).collect();
        let tokenizer = serde_json::json!({
            "normalizer": { "type": "BertNormalizer", "lowercase": true },
            "pre_tokenizer": { "type": "BertPreTokenizer" },
            "model": { "type": kind, "unk_token": "[UNK]", "continuing_subword_prefix": "##", "vocab": vocabulary },
        });
        fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).expect("writes");
        let numbers: Vec<u8> = [
            [0.0_f32, 0.0],
            [1.0, 0.0],
            [0.0, 1.0],
            [0.0, 1.0],
            [0.0, 0.0],
        ]
        .concat()
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
        let header = serde_json::json!({
            "embeddings": { "dtype": "F32", "shape": [5, 2], "data_offsets": [0, 40] }
        })
        .to_string();
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend_from_slice(header.as_bytes());
        file.extend_from_slice(&numbers);
        fs::write(folder.join("model.safetensors"), file).expect("writes");
    }

    #[tokio::test]
    async fn a_text_is_the_mean_of_its_words() {
        let folder = tempfile::tempdir().expect("makes");
        written(folder.path(), "WordPiece");
        let model = StaticModel::open(folder.path()).expect("opens");
        let texts = ["Red", "GREEN, green", "reddish", "Réd", ""].map(String::from);
        let vectors = model.embed(&texts).await.expect("embeds");
        assert_eq!(vectors[0], [1.0, 0.0]);
        assert_eq!(vectors[1], [0.0, 1.0]);
        // "reddish" has no pieces that are known; accents go.
        assert_eq!(vectors[2], [0.0, 0.0]);
        assert_eq!(vectors[3], [1.0, 0.0]);
        assert_eq!(vectors[4], [0.0, 0.0]);
        let mixed = model
            .embed(&[String::from("redish")])
            .await
            .expect("embeds");
        assert!((mixed[0][0] - mixed[0][1]).abs() < 1e-6);
    }

    #[test]
    fn what_is_not_understood_is_said() {
        let folder = tempfile::tempdir().expect("makes");
        let error = StaticModel::open(folder.path()).expect_err("is empty");
        assert_eq!(error.kind, Kind::Invalid);
        written(folder.path(), "Unigram");
        let error = StaticModel::open(folder.path()).expect_err("is another kind");
        assert!(error.chain().contains("Unigram"), "{}", error.chain());
        written(folder.path(), "WordPiece");
        let path = folder.path().join("model.safetensors");
        let whole = fs::read(&path).expect("reads");
        for length in [0, 7, 20, whole.len() - 1] {
            fs::write(&path, &whole[..length]).expect("writes");
            let error = StaticModel::open(folder.path()).expect_err("is cut short");
            assert_eq!(error.kind, Kind::Invalid, "{length}");
        }
    }
}
