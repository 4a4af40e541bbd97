//! WordPiece: words at blanks and punctuation, then the longest known pieces of each.

use std::collections::HashMap;

use serde::Deserialize;

/// Longest word in letters; a longer one is unknown.
const WORD_MAX: usize = 100;

/// A tokenizer.
#[derive(Debug)]
pub(super) struct Tokenizer {
    vocabulary: HashMap<String, u32>,
    prefix: String,
    unknown: Option<u32>,
    lowercase: bool,
    accents: bool,
}

#[derive(Deserialize)]
struct File {
    model: Model,
    #[serde(default)]
    normalizer: Option<Normalizer>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    vocab: serde_json::Value,
}

#[derive(Deserialize)]
struct Normalizer {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    lowercase: Option<bool>,
    #[serde(default)]
    strip_accents: Option<bool>,
    #[serde(default)]
    normalizers: Vec<Normalizer>,
}

impl Tokenizer {
    /// Reads `tokenizer.json`.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let file: File = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let kind = file.model.kind.as_deref().unwrap_or("WordPiece");
        if kind != "WordPiece" {
            return Err(format!(
                "its tokens are made by {kind}; only WordPiece is understood"
            ));
        }
        let vocabulary: HashMap<String, u32> = serde_json::from_value(file.model.vocab)
            .map_err(|error| format!("its vocabulary: {error}"))?;
        let unknown = file.model.unk_token.as_deref().unwrap_or("[UNK]");
        let mut tokenizer = Self {
            unknown: vocabulary.get(unknown).copied(),
            vocabulary,
            prefix: file
                .model
                .continuing_subword_prefix
                .unwrap_or_else(|| String::from("##")),
            lowercase: false,
            accents: true,
        };
        if let Some(normalizer) = &file.normalizer {
            tokenizer.normalize(normalizer)?;
        }
        Ok(tokenizer)
    }

    fn normalize(&mut self, normalizer: &Normalizer) -> Result<(), String> {
        match normalizer.kind.as_str() {
            "BertNormalizer" => {
                self.lowercase = normalizer.lowercase.unwrap_or(true);
                self.accents = !normalizer.strip_accents.unwrap_or(self.lowercase);
            }
            "Lowercase" => self.lowercase = true,
            "StripAccents" => self.accents = false,
            "Sequence" => {
                for one in &normalizer.normalizers {
                    self.normalize(one)?;
                }
            }
            "NFC" | "NFD" | "NFKC" | "NFKD" | "Replace" | "Strip" => {}
            other => return Err(format!("its normalizer {other} is not understood")),
        }
        Ok(())
    }

    /// The largest number of a token.
    pub(super) fn largest(&self) -> Option<u32> {
        self.vocabulary.values().copied().max()
    }

    /// The tokens of a text. Unknown words have none.
    pub(super) fn tokens(&self, text: &str) -> impl Iterator<Item = u32> {
        let text: String = match self.lowercase {
            true => text.to_lowercase(),
            false => text.to_owned(),
        };
        let plain = text.chars().filter_map(|letter| match self.accents {
            true => Some(letter),
            false => without_accent(letter),
        });
        let mut words = vec![String::new()];
        for letter in plain {
            if letter.is_whitespace() || letter.is_control() {
                words.push(String::new());
            } else if is_alone(letter) {
                words.push(letter.to_string());
                words.push(String::new());
            } else if let Some(word) = words.last_mut() {
                word.push(letter);
            }
        }
        words.into_iter().flat_map(|word| self.pieces(&word))
    }

    /// The pieces of a word; none when some of it is unknown.
    fn pieces(&self, word: &str) -> Vec<u32> {
        if word.is_empty() || word.chars().count() > WORD_MAX {
            return Vec::new();
        }
        let mut pieces = Vec::new();
        let mut rest = word;
        while !rest.is_empty() {
            let ends = rest
                .char_indices()
                .map(|(at, letter)| at + letter.len_utf8());
            let found = ends.rev().find_map(|end| {
                let piece = match pieces.is_empty() {
                    true => self.vocabulary.get(&rest[..end]),
                    false => self
                        .vocabulary
                        .get(&format!("{}{}", self.prefix, &rest[..end])),
                };
                piece.map(|piece| (*piece, end))
            });
            match found {
                Some((piece, end)) if Some(piece) != self.unknown => {
                    pieces.push(piece);
                    rest = &rest[end..];
                }
                _ => return Vec::new(),
            }
        }
        pieces
    }
}

/// Letters that are words by themselves: punctuation, and those of scripts without blanks.
fn is_alone(letter: char) -> bool {
    let code = u32::from(letter);
    letter.is_ascii_punctuation()
        || matches!(code, 0x2010..=0x2027 | 0x2030..=0x205e | 0x3001..=0x3003 | 0x3008..=0x3011)
        || matches!(
            code,
            0x00a1 | 0x00a7 | 0x00ab | 0x00b6 | 0x00b7 | 0x00bb | 0x00bf
        )
        || matches!(code, 0x4e00..=0x9fff | 0x3400..=0x4dbf | 0xf900..=0xfaff | 0x20000..=0x2fa1f)
}

/// A letter without its accent; none for an accent by itself. Of the letters of European languages.
fn without_accent(letter: char) -> Option<char> {
    let plain = match letter {
        '\u{0300}'..='\u{036f}' => return None,
        'à' | 'á' | 'â' | 'ã' | 'ä' | 'å' | 'ā' | 'ă' | 'ą' => 'a',
        'ç' | 'ć' | 'ĉ' | 'ċ' | 'č' => 'c',
        'ď' => 'd',
        'è' | 'é' | 'ê' | 'ë' | 'ē' | 'ĕ' | 'ė' | 'ę' | 'ě' => 'e',
        'ĝ' | 'ğ' | 'ġ' | 'ģ' => 'g',
        'ĥ' => 'h',
        'ì' | 'í' | 'î' | 'ï' | 'ĩ' | 'ī' | 'ĭ' | 'į' => 'i',
        'ĵ' => 'j',
        'ķ' => 'k',
        'ĺ' | 'ļ' | 'ľ' => 'l',
        'ñ' | 'ń' | 'ņ' | 'ň' => 'n',
        'ò' | 'ó' | 'ô' | 'õ' | 'ö' | 'ō' | 'ŏ' | 'ő' => 'o',
        'ŕ' | 'ŗ' | 'ř' => 'r',
        'ś' | 'ŝ' | 'ş' | 'š' | 'ș' => 's',
        'ţ' | 'ť' | 'ț' => 't',
        'ù' | 'ú' | 'û' | 'ü' | 'ũ' | 'ū' | 'ŭ' | 'ů' | 'ű' | 'ų' => 'u',
        'ŵ' => 'w',
        'ý' | 'ÿ' | 'ŷ' => 'y',
        'ź' | 'ż' | 'ž' => 'z',
        other => other,
    };
    Some(plain)
}
