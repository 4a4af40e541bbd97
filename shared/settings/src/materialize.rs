//! `materialize`: what entries are held to.

use domain::{
    EntrySettings,
    duration::parse_duration,
    entry::{INLINE_MAX, Mode},
};

use std::path::Path;

use crate::{
    Embedding, Secret,
    load::{finish, place_of},
    read::Reader,
    tree::Node,
    words::size,
};

pub(crate) fn materialize(reader: &mut Reader<'_>, node: Option<Node>) -> EntrySettings {
    let mut section = reader.section("materialize", node);
    let d = EntrySettings::default();
    let bytes = |text: &str| size(text).map(|bytes| bytes as u64);
    let mode = reader.value(&mut section, "mode", d.mode, mode);
    let inline_max = reader.value(&mut section, "inline_max", d.inline_max, |text| {
        match bytes(text) {
            Ok(size) if size > INLINE_MAX => Err(format!(
                "`{text}` is more than {}KB: what is longer does not fit an item of the state store",
                INLINE_MAX >> 10
            )),
            size => size,
        }
    });
    let upload_max = reader.value(&mut section, "upload_max", d.upload_max, bytes);
    let count = |text: &str| {
        let count = text.replace('_', "").parse::<u64>();
        count.map_err(|_| format!("`{text}` is no number of rows"))
    };
    let exact_max = reader.value(&mut section, "exact_max", d.exact_max, count);
    let search_cache = reader.value(&mut section, "search_cache", d.search_cache, bytes);
    let mut span = |key, default| reader.value(&mut section, key, default, parse_duration);
    let settings = EntrySettings {
        ttl: span("ttl", d.ttl),
        mode,
        inline_max,
        lease: span("lease", d.lease),
        wait_max: span("wait_max", d.wait_max),
        grace: span("grace", d.grace),
        stale_max: span("stale_max", d.stale_max),
        upload_max,
        exact_max,
        search_cache,
    };
    finish(reader, section, "materialize");
    settings
}

/// `embedder`: what makes vectors of text. The scheme of the URL chooses.
pub(crate) fn embedder(reader: &mut Reader<'_>, node: Option<Node>, project: &Path) -> Embedding {
    let place = place_of(node.as_ref());
    let mut section = reader.section("embedder", node);
    let url = reader.value(&mut section, "url", String::new(), accept);
    let model = reader.value(&mut section, "model", String::new(), accept);
    let key = reader.value(&mut section, "key", None, |text| {
        let key = text.trim().to_owned();
        Ok::<_, String>((!key.is_empty()).then_some(Secret(key)))
    });
    let embedding = match (url.trim().split_once("://"), model.trim()) {
        (None, _) if url.trim().is_empty() => Embedding::None,
        (Some(("file", folder)), _) => Embedding::Model(project.join(folder)),
        (Some(("http" | "https", host)), model) if !host.is_empty() && !model.is_empty() => {
            Embedding::Http {
                url: url.trim().trim_end_matches('/').to_owned(),
                model: model.to_owned(),
                key,
            }
        }
        (Some(("http" | "https", _)), "") => {
            reader.complain(place, "`embedder.url` of a service needs `embedder.model`");
            Embedding::None
        }
        (Some(("bedrock", "")), "") => {
            reader.complain(
                place,
                "`bedrock://` needs a model behind it, or `embedder.model`",
            );
            Embedding::None
        }
        (Some(("bedrock", "")), model) => Embedding::Bedrock(model.to_owned()),
        (Some(("bedrock", model)), _) => Embedding::Bedrock(model.to_owned()),
        _ => {
            reader.complain(
                place,
                "`embedder.url` is `https://host/v1`, `bedrock://model`, or `file://folder` of a local model",
            );
            Embedding::None
        }
    };
    finish(reader, section, "embedder");
    embedding
}

fn accept(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

fn mode(text: &str) -> Result<Mode, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "swr" => Ok(Mode::Swr),
        "strict" => Ok(Mode::Strict),
        _ => Err(format!("`{text}` is neither `swr` nor `strict`")),
    }
}
