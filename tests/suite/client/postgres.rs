//! A slow query against a real PostgreSQL, wrapped: a miss, then a hit that does not touch it.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use client::{Client, Served, materialize};
use libtest_mimic::Trial;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tests::{site::Site, transport::Direct};
use tokio_postgres::NoTls;

use crate::plain::{block_on, test_given};

/// When set, PostgreSQL must be there.
const REQUIRED: &str = "HEADWATER_POSTGRES_REQUIRED";
/// A folder with `initdb` and `postgres`, where they are not in a usual place.
const BINARIES: &str = "HEADWATER_POSTGRES";

pub(crate) fn trials() -> Vec<Trial> {
    vec![test_given(
        "client::a_slow_query_against_postgresql_is_run_once",
        REQUIRED,
        binaries,
        |binaries| block_on(slow_query(binaries)),
    )]
}

/// Where the server's programs are.
fn binaries() -> Result<PathBuf, String> {
    let named = std::env::var_os(BINARIES).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut debian: Vec<PathBuf> = debian.map(|version| version.path().join("bin")).collect();
    debian.sort();
    let all = named
        .into_iter()
        .chain(debian.into_iter().rev())
        .chain(std::env::split_paths(&path));
    let found = all
        .into_iter()
        .find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file());
    found.ok_or_else(|| {
        format!("there is no PostgreSQL (`initdb`, `postgres`); {BINARIES} names its folder")
    })
}

/// A server in a folder of its own, reached by a socket in it; it ends with this value.
struct Server {
    child: Child,
    folder: TempDir,
}

impl Server {
    async fn start(binaries: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let data = folder.path().join("data");
        std::fs::create_dir(&data)?;
        let privileged = is_root()?;
        if privileged {
            // It refuses to run as root: the folder is given to a user who may do nothing else.
            let owned = Command::new("chown")
                .args(["-R", "nobody"])
                .arg(folder.path())
                .status()?;
            ensure!(owned.success(), "chown fails");
        }
        let initialized = command(&binaries.join("initdb"), privileged)
            .args(["--auth=trust", "--username=reader", "--no-sync", "--pgdata"])
            .arg(&data)
            .output()?;
        ensure!(
            initialized.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&initialized.stderr)
        );
        let log = std::fs::File::create(folder.path().join("log"))?;
        let child = command(&binaries.join("postgres"), privileged)
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-k"])
            .arg(folder.path())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        let server = Self { child, folder };
        server.ready().await?;
        Ok(server)
    }

    async fn ready(&self) -> Result<()> {
        for _ in 0..300 {
            if tokio_postgres::connect(&self.address(), NoTls)
                .await
                .is_ok()
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        bail!("PostgreSQL does not come up: {log}")
    }

    fn address(&self) -> String {
        format!(
            "host={} user=reader dbname=postgres",
            self.folder.path().display()
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_root() -> Result<bool> {
    let id = Command::new("id").arg("-u").output().context("id -u")?;
    Ok(String::from_utf8_lossy(&id.stdout).trim() == "0")
}

/// A program, as a user who may run it.
fn command(program: &Path, privileged: bool) -> Command {
    if !privileged {
        return Command::new(program);
    }
    // It takes the place of the program it starts, so that ending it ends that.
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=nobody", "--clear-groups", "--"])
        .arg(program);
    command
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Revenue {
    region: String,
    orders: i64,
    revenue: f64,
}

/// Where the function finds its database and its registry.
#[derive(Clone, Debug)]
struct Place {
    database: Arc<tokio_postgres::Client>,
    client: Client,
}

#[materialize(key = "revenue", ttl = "10m", client = place.client, key_fn = |_, year: &i32| *year)]
async fn revenue(place: Place, year: i32) -> Result<Vec<Revenue>, tokio_postgres::Error> {
    let sql = "SELECT region, count(*) AS orders, sum(amount)::float8 AS revenue
               FROM orders, pg_sleep(0.7) WHERE extract(year FROM at)::int4 = $1 GROUP BY region ORDER BY region";
    let rows = place.database.query(sql, &[&year]).await?;
    let row = |row: &tokio_postgres::Row| Revenue {
        region: row.get("region"),
        orders: row.get("orders"),
        revenue: row.get("revenue"),
    };
    Ok(rows.iter().map(row).collect())
}

async fn slow_query(binaries: PathBuf) -> Result<()> {
    let server = Server::start(&binaries).await?;
    let (database, connection) = tokio_postgres::connect(&server.address(), NoTls).await?;
    tokio::spawn(connection);
    database
        .batch_execute(
            "CREATE TABLE orders AS SELECT n AS id, (ARRAY['eu', 'us', 'apac'])[1 + n % 3] AS region,
             (n % 1000)::numeric / 100 AS amount, timestamp '2026-01-01' + n * interval '1 minute' AS at
             FROM generate_series(1, 300000) AS n",
        )
        .await?;
    let site = Site::in_memory(&[], "")?;
    let place = Place {
        database: Arc::new(database),
        client: Direct::new(site.router()).client(),
    };
    let mut results = Vec::new();
    for (word, expected) in [("miss", Served::Built), ("hit", Served::Hit)] {
        let started = Instant::now();
        let frame = revenue(place.clone(), 2026).await?;
        let rows: Vec<Revenue> = frame.rows().await?;
        println!("{word}: {} regions in {:?}", rows.len(), started.elapsed());
        ensure!(frame.served() == expected, "{frame:?}");
        ensure!(place.client.flush().await.failed == 0);
        results.push((rows, started.elapsed()));
    }
    ensure!(results[0].0 == results[1].0 && results[0].0.len() == 3);
    ensure!(
        results[0].1 >= Duration::from_millis(700) && results[1].1 < Duration::from_millis(700)
    );
    // The database is away: the entry answers, and more than it was asked for.
    drop(server);
    let frame = revenue(place.clone(), 2026).await?;
    let top: Vec<Revenue> = frame
        .filter("region__in", ["eu", "us"])
        .order_by(&["-revenue"])
        .rows()
        .await?;
    ensure!(frame.served() == Served::Hit && top.len() == 2 && top[0].revenue >= top[1].revenue);
    Ok(())
}
