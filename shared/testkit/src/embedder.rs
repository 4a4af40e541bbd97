//! Vectors of text that only tests can want.

use async_trait::async_trait;
use ports::{Embedder, Error, Kind, Result};

/// For tests only: a vector has one number per letter of the alphabet, how often the text has it. Texts with `unavailable` in
/// them are refused as by a service that does not answer, and blank ones as services do.
#[derive(Clone, Copy, Debug, Default)]
pub struct TestsOnlyEmbedder;

#[async_trait]
impl Embedder for TestsOnlyEmbedder {
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        if texts.iter().any(|text| text.contains("unavailable")) {
            return Err(Error::new(Kind::Unavailable, "embed", "text").because("as the test asked"));
        }
        if texts.iter().any(|text| text.trim().is_empty()) {
            return Err(Error::new(Kind::Invalid, "embed", "text").because("a text is empty"));
        }
        let count = |text: &String| {
            let mut vector = vec![0.0; 26];
            for letter in text.bytes().map(|byte| byte.to_ascii_lowercase()) {
                if letter.is_ascii_lowercase() {
                    vector[usize::from(letter - b'a')] += 1.0;
                }
            }
            vector
        };
        Ok(texts.iter().map(count).collect())
    }
}
