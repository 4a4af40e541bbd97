//! The state file: what it must be, how it is opened, and what is in it.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    thread,
    time::Duration,
};

use domain::items;
use ports::{Error, Kind, Result};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::failure::{NOT_OURS, failure};
use crate::objects::{create_folders, sync_folder};

/// "HWST" in the file's header: whose SQLite file it is.
const APPLICATION_ID: i32 = 0x4857_5354;
/// Version of the tables below.
const SCHEMA_VERSION: i32 = 1;
/// How long to wait for another process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(15);
/// SQLite's header: its first bytes, its length, and where the application's id is in it.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const HEADER_BYTES: usize = 100;
const APPLICATION_ID_AT: usize = 68;

const OPEN: &str = "open state";

/// Items have a row id besides their key because values are large: a table without one would keep
/// them in the inner pages of its tree. The two tables of Iceberg are as PyIceberg 0.12 creates
/// them.
const SCHEMA: &str = "
    CREATE TABLE items (
        id INTEGER PRIMARY KEY,
        partition TEXT NOT NULL,
        sort TEXT NOT NULL,
        version INTEGER NOT NULL,
        value BLOB NOT NULL,
        UNIQUE (partition, sort)
    );
    CREATE TABLE versions (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL);
    INSERT INTO versions (id, last) VALUES (1, 0);
    CREATE TABLE iceberg_tables (
        catalog_name VARCHAR(255) NOT NULL,
        table_namespace VARCHAR(255) NOT NULL,
        table_name VARCHAR(255) NOT NULL,
        metadata_location VARCHAR(1000),
        previous_metadata_location VARCHAR(1000),
        iceberg_type VARCHAR(5),
        PRIMARY KEY (catalog_name, table_namespace, table_name)
    );
    CREATE TABLE iceberg_namespace_properties (
        catalog_name VARCHAR(255) NOT NULL,
        namespace VARCHAR(255) NOT NULL,
        property_key VARCHAR(255) NOT NULL,
        property_value VARCHAR(1000) NOT NULL,
        PRIMARY KEY (catalog_name, namespace, property_key)
    );
";

/// Opens or creates a state file and makes sure that it is one.
pub(super) fn open(path: &Path) -> Result<Connection> {
    let unavailable =
        |error: io::Error| Error::new(Kind::Unavailable, OPEN, path.display()).because(error);
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    create_folders(folder).map_err(unavailable)?;
    refuse_foreign(path)?;
    let mut connection = connect_with(path, OpenFlags::SQLITE_OPEN_CREATE)?;
    initialise(&mut connection, path)?;
    // The file's name is in its folder for good only when the folder is on disk too.
    sync_folder(folder).map_err(unavailable)?;
    Ok(connection)
}

/// Whether a state file alone, without its log, is one of ours that knows no table. What is no such file is not judged
/// here: opening it says what is wrong. Nothing is written, and no log is begun.
pub(super) fn is_blank(path: &Path) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'-' | b'_');
    let name = path.as_os_str().as_encoded_bytes().iter();
    let name: String = name
        .map(|byte| match plain(*byte) {
            true => char::from(*byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect();
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let knows = || {
        let connection = Connection::open_with_flags(format!("file:{name}?immutable=1"), flags)?;
        let known = "SELECT EXISTS (SELECT 1 FROM items WHERE partition IN (?1, ?2))";
        connection.query_row(known, (items::TABLES, items::CATALOG), |row| row.get(0))
    };
    knows().is_ok_and(|knows: bool| !knows)
}

/// One more connection to a state file that has been opened.
pub(super) fn connect(path: &Path) -> Result<Connection> {
    connect_with(path, OpenFlags::empty())
}

fn connect_with(path: &Path, also: OpenFlags) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | also;
    let connect = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // FULL: the log is synced before a commit returns. The full syncs matter on macOS alone.
        connection.execute_batch(
            "PRAGMA synchronous = FULL;
             PRAGMA fullfsync = ON;
             PRAGMA checkpoint_fullfsync = ON;
             PRAGMA cache_size = -8000;
             PRAGMA temp_store = MEMORY;
             PRAGMA trusted_schema = OFF;",
        )?;
        connection.set_prepared_statement_cache_capacity(32);
        Ok(connection)
    };
    connect().map_err(|error| failure(OPEN, path, &error))
}

/// Looks at the first bytes, because SQLite may write to what it opens: recover a log, or take an
/// empty file over.
fn refuse_foreign(path: &Path) -> Result<()> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    let read = match File::open(path) {
        Ok(file) if file.metadata().is_ok_and(|known| known.is_dir()) => {
            return Err(Error::new(Kind::Invalid, OPEN, path.display()).because("it is a folder"));
        }
        Ok(file) => file.take(HEADER_BYTES as u64).read_to_end(&mut header),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => Err(error),
    };
    read.map_err(|e| Error::new(Kind::Unavailable, OPEN, path.display()).because(e))?;
    let id = APPLICATION_ID.to_be_bytes();
    let ours = header.len() == HEADER_BYTES
        && header.starts_with(MAGIC)
        && header[APPLICATION_ID_AT..].starts_with(&id);
    if header.is_empty() || ours {
        return Ok(());
    }
    Err(Error::new(Kind::Corrupt, OPEN, path.display()).because(NOT_OURS))
}

/// Applies the schema to a new file; of an old one, checks its version. Two processes may be here
/// at once.
fn initialise(connection: &mut Connection, path: &Path) -> Result<()> {
    let failed = |error: rusqlite::Error| failure(OPEN, path, &error);
    if identity(connection).map_err(failed)? == (0, 0) {
        create(connection).map_err(failed)?;
    }
    match identity(connection).map_err(failed)? {
        (APPLICATION_ID, SCHEMA_VERSION) => {}
        (APPLICATION_ID, newer) if newer > SCHEMA_VERSION => {
            let because =
                format!("its schema is version {newer}, and this program knows {SCHEMA_VERSION}");
            return Err(Error::new(Kind::Invalid, OPEN, path.display()).because(because));
        }
        _ => return Err(Error::new(Kind::Corrupt, OPEN, path.display()).because(NOT_OURS)),
    }
    // Only now: the switch writes the header by itself, and a header without our id must never be
    // left behind.
    write_ahead(connection).map_err(failed)
}

fn identity(connection: &Connection) -> rusqlite::Result<(i32, i32)> {
    let read = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    Ok((read("application_id")?, read("user_version")?))
}

fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if identity(&transaction)? == (0, 0) {
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
        transaction.execute_batch(SCHEMA)?;
    }
    transaction.commit()
}

/// Turns on the write-ahead log, which stays on. SQLite does not wait by itself for another process
/// that does the same.
fn write_ahead(connection: &Connection) -> rusqlite::Result<()> {
    let pause = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    loop {
        let mode: rusqlite::Result<String> =
            connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0));
        match mode {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && waited < BUSY_TIMEOUT =>
            {
                thread::sleep(pause);
                waited += pause;
            }
            other => return other.map(|_| ()),
        }
    }
}
