//! `materialize`: what entries are held to.

use domain::{
    EntrySettings,
    duration::parse_duration,
    entry::{INLINE_MAX, Mode},
};

use crate::{FILE, load::finish, read::Reader, tree::Node, words::size};

pub(crate) fn materialize(reader: &mut Reader<'_>, node: Option<Node>) -> EntrySettings {
    let mut section = reader.section("materialize", node);
    let d = EntrySettings::default();
    let bytes = |text: &str| size(text).map(|bytes| bytes as u64);
    let mode = reader.value(&mut section, "mode", d.mode, mode);
    let inline_max = reader.value(&mut section, "inline_max", d.inline_max, bytes);
    let upload_max = reader.value(&mut section, "upload_max", d.upload_max, bytes);
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
    };
    if settings.inline_max > INLINE_MAX {
        reader.complain(
            FILE,
            format!(
                "`materialize.inline_max` is at most {INLINE_MAX} bytes: what is longer does not fit an item of the state store"
            ),
        );
    }
    finish(reader, section, "materialize");
    settings
}

fn mode(text: &str) -> Result<Mode, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "swr" => Ok(Mode::Swr),
        "strict" => Ok(Mode::Strict),
        _ => Err(format!("`{text}` is neither `swr` nor `strict`")),
    }
}
