//! Files that other writers left under `incoming/`: committed in key order, each once.
//!
//! A parquet file whose columns are those of a landing table is committed where it lies; it stays there. Any other
//! file is read as a whole first, so that a bad line refuses the file and stores nothing of it, and copied; an NDJSON
//! or CSV file is deleted after its commit. Names that begin with `_` or `.` are other programs' own and left alone.

use std::collections::HashMap;

use domain::{
    Timestamp,
    items::{self, BatchData},
};
use futures::TryStreamExt;
use object_store::{ObjectMeta, ObjectStoreExt, path::Path};
use ports::{
    Error, Kind, Result,
    landing::Advanced,
    state::{Expect, Key, Span, Write, query_all},
};

use super::{
    World,
    commit::{self, Committed, FileSeen, Known, Seen},
    copy,
    draft::{Draft, Mark},
    lane::Lane,
    reader, schema,
};

/// Marks asked of the state store at once.
const PAGE: usize = 1_000;
const MARK: &str = "incoming#";

/// A file that waits.
pub(super) struct Incoming {
    pub(super) path: Path,
    pub(super) size: u64,
    /// Its path below `incoming/`.
    pub(super) name: String,
    pub(super) origin_at: Timestamp,
}

/// Commits what waits. `None` when there is neither a table nor a file.
pub(super) async fn advance(
    world: &World,
    lane: &Lane,
    now: Timestamp,
) -> Result<Option<Advanced>> {
    let files = list(world, lane, now).await?;
    let marks = if files.is_empty() {
        HashMap::new()
    } else {
        marks(world, lane).await?
    };
    let mut sum: Option<Advanced> = None;
    for file in &files {
        if let Some((from, to, position)) = take(world, lane, file, marks.get(&file.name)).await? {
            let so_far = sum.get_or_insert(Advanced {
                rows: 0,
                from,
                to,
                position,
            });
            so_far.rows += to - from;
            so_far.to = to;
            so_far.position = position;
        }
    }
    if sum.is_some() {
        return Ok(sum);
    }
    let mut known = lane.known.lock().await;
    // Somebody else may have committed since this process last looked.
    *known = None;
    let head = commit::load(world, &lane.table, &mut known).await?;
    let Known { position, .. } = *head;
    let sequence = position.sequence;
    let nothing = Advanced {
        rows: 0,
        from: sequence,
        to: sequence,
        position,
    };
    Ok((head.exists() || !files.is_empty()).then_some(nothing))
}

async fn list(world: &World, lane: &Lane, now: Timestamp) -> Result<Vec<Incoming>> {
    let prefix = Path::from(format!(
        "{}/{}/incoming",
        lane.table.schema(),
        lane.table.name()
    ));
    let found: Vec<ObjectMeta> = world.objects.list(Some(&prefix)).try_collect().await?;
    let mut files: Vec<Incoming> = found
        .into_iter()
        .filter_map(|object| {
            let name = object
                .location
                .as_ref()
                .strip_prefix(prefix.as_ref())?
                .trim_start_matches('/');
            let own = object
                .location
                .filename()
                .is_some_and(|name| !name.starts_with(['_', '.']));
            let arrived = Timestamp(object.last_modified.timestamp_micros());
            own.then(|| Incoming {
                name: name.to_owned(),
                size: object.size,
                origin_at: arrived.min(now),
                path: object.location.clone(),
            })
        })
        .collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// Parquet files that were committed, by name.
async fn marks(world: &World, lane: &Lane) -> Result<HashMap<String, FileSeen>> {
    let span = Span::prefix(items::table(&lane.table), MARK, PAGE);
    let mut marks = HashMap::new();
    for item in query_all(world.state.as_ref(), span).await? {
        let seen: Seen = item.decode()?;
        if let (Some(name), Some(file)) = (item.key.sort.strip_prefix(MARK), seen.file) {
            marks.insert(name.to_owned(), file);
        }
    }
    Ok(marks)
}

type Range = (u64, u64, domain::Position);

/// Commits one file; none when it had been committed, or has no rows.
pub(super) async fn take(
    world: &World,
    lane: &Lane,
    file: &Incoming,
    mark: Option<&FileSeen>,
) -> Result<Option<Range>> {
    match copy::format(file)? {
        None => match mark {
            Some(seen) if seen.size == file.size => Ok(None),
            Some(_) => Err(refuse(
                file,
                "it was committed before, and changed since; give new rows a new name",
            )),
            None => parquet(world, lane, file).await,
        },
        Some(format) => {
            let known = lane_columns(world, lane).await?;
            let text = match copy::text(world, &lane.table, file, format, &known).await {
                // Another advance committed and deleted it since it was listed.
                Err(error) if error.kind == Kind::NotFound => return Ok(None),
                read => read?,
            };
            let key = format!("{MARK}{}#{}", file.name, text.digest);
            let seen = FileSeen {
                size: file.size,
                digest: Some(text.digest),
            };
            let range = match text.draft {
                Some(draft) => store(world, lane, file, draft, key, seen).await?,
                None => None,
            };
            // The rows are committed: a file that stays is found out by its digest.
            if let Err(error) = world.objects.delete(&file.path).await {
                tracing::warn!(file = %file.path, %error, "a committed file could not be deleted");
            }
            Ok(range)
        }
    }
}

async fn parquet(world: &World, lane: &Lane, file: &Incoming) -> Result<Option<Range>> {
    let builder = reader::open(&world.objects, &file.path, file.size)
        .await
        .map_err(|e| refuse(file, e.to_string()))?;
    let rows = u64::try_from(builder.metadata().file_metadata().num_rows())
        .map_err(|e| refuse(file, e.to_string()))?;
    let found = schema::widened(builder.schema());
    schema::check_names(found.fields().iter().map(|field| field.name().as_str()))
        .map_err(|why| refuse(file, why))?;
    let columns = schema::columns_of(&found);
    schema::unite(&lane.table, &mut lane_columns(world, lane).await?, &columns)
        .map_err(|why| refuse(file, why))?;
    let key = format!("{MARK}{}", file.name);
    let seen = FileSeen {
        size: file.size,
        digest: None,
    };
    if rows == 0 {
        let mark = Key::new(items::table(&lane.table), key);
        let at = world.clock.now();
        let seen = Seen {
            first: 0,
            last: 0,
            position: Default::default(),
            at,
            file: Some(seen),
        };
        world
            .state
            .transact(vec![Write::put(mark, &seen, Expect::Any)])
            .await?;
        return Ok(None);
    }
    let draft = if schema::is_canonical(builder.schema()) {
        let data = BatchData::Object {
            path: file.path.to_string(),
            size: file.size,
        };
        let (origin_at, marks) = (file.origin_at, Vec::new());
        Draft {
            rows,
            columns,
            origin_at,
            data,
            bytes: bytes::Bytes::new(),
            marks,
        }
    } else {
        copy::parquet(world, &lane.table, file, builder, found).await?
    };
    store(world, lane, file, draft, key, seen).await
}

async fn lane_columns(world: &World, lane: &Lane) -> Result<Vec<items::Column>> {
    let mut known = lane.known.lock().await;
    Ok(commit::load(world, &lane.table, &mut known)
        .await?
        .columns
        .clone())
}

/// Commits the draft of a file, with the mark that says so.
async fn store(
    world: &World,
    lane: &Lane,
    file: &Incoming,
    mut draft: Draft,
    key: String,
    seen: FileSeen,
) -> Result<Option<Range>> {
    let rows = draft.rows;
    let key = Key::new(items::table(&lane.table), key);
    draft.marks.push(Mark {
        key,
        offset: 0,
        rows,
        file: Some(seen),
    });
    let mut known = lane.known.lock().await;
    match commit::commit(world, &lane.table, &mut known, &draft).await? {
        Committed::Done { from, position } => Ok(Some((from, from + rows, position))),
        Committed::Seen(_) => Ok(None),
        Committed::Moved(why) => Err(refuse(file, why)),
    }
}

/// The file cannot be read, or not as rows of this table. Files are committed in the order of their names, so that those behind
/// it wait.
pub(super) fn refuse(file: &Incoming, why: impl std::fmt::Display) -> Error {
    let what = "mend the file, or move it out of `incoming/`: the files behind it in the order of names wait for it";
    Error::new(Kind::Invalid, "commit incoming file", &file.path).because(format!("{why}; {what}"))
}
