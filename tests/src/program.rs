//! The real `headwater` program as a child process.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::http::Client;

/// Longest a server may take to answer its first request.
const START_MAX: Duration = Duration::from_secs(30);

/// The program built beside the running test or benchmark: `target/<profile>/headwater`.
///
/// # Errors
/// When it has not been built.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("HEADWATER_BINARY") {
        return Ok(PathBuf::from(path));
    }
    let own = std::env::current_exe()?;
    let found = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join("headwater"))
        .find(|path| path.is_file());
    found.context("`headwater` is not built: cargo build --release --bin headwater")
}

/// The program, without the variables that only this suite knows.
///
/// # Errors
/// When it has not been built.
pub fn command() -> Result<Command> {
    let mut command = Command::new(binary()?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("HEADWATER_") {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// Runs the program to its end.
///
/// # Errors
/// When it cannot be started.
pub fn run(project: &Path, arguments: &[&str]) -> Result<Output> {
    let output = command()?
        .arg("--project")
        .arg(project)
        .args(arguments)
        .stdin(Stdio::null())
        .output()?;
    Ok(output)
}

/// A running `headwater serve`; killed when dropped.
#[derive(Debug)]
pub struct Served {
    child: Child,
    /// `127.0.0.1:PORT`.
    pub address: String,
}

impl Served {
    /// Serves a project on a free port, with extra variables, and waits until it answers.
    ///
    /// # Errors
    /// When it ends or does not answer in time.
    pub async fn start(project: &Path, variables: &[(&str, &str)]) -> Result<Self> {
        let mut command = command()?;
        command
            .arg("--project")
            .arg(project)
            .args(["serve", "--listen", "127.0.0.1:0"]);
        Self::spawn(command, variables).await
    }

    /// Starts a command that ends up as `headwater serve --listen 127.0.0.1:0`.
    ///
    /// # Errors
    /// When it ends or does not answer in time.
    pub async fn spawn(command: Command, variables: &[(&str, &str)]) -> Result<Self> {
        Self::spawn_with(command, variables, Stdio::piped()).await
    }

    /// As [`Served::start`], with nobody at the other end of stderr: every write to it fails.
    ///
    /// # Errors
    /// When it ends or does not answer in time.
    pub async fn start_unheard(project: &Path, variables: &[(&str, &str)]) -> Result<Self> {
        let mut command = command()?;
        command
            .arg("--project")
            .arg(project)
            .args(["serve", "--listen", "127.0.0.1:0"]);
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        Self::spawn_with(command, variables, Stdio::from(writer)).await
    }

    async fn spawn_with(
        mut command: Command,
        variables: &[(&str, &str)],
        stderr: Stdio,
    ) -> Result<Self> {
        command
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr);
        let mut child = command
            .spawn()
            .with_context(|| format!("start {command:?}"))?;
        let (found, address) = mpsc::channel();
        // Both streams are read to their ends, or the program would block on a full pipe.
        if let Some(out) = child.stdout.take() {
            watch(out, found.clone());
        }
        if let Some(err) = child.stderr.take() {
            watch(err, found);
        }
        let started = Instant::now();
        let mut served = Self {
            child,
            address: String::new(),
        };
        served.address = loop {
            match address.recv_timeout(Duration::from_millis(20)) {
                Ok(address) => break address,
                Err(_) if started.elapsed() > START_MAX => {
                    bail!("the server never said where it listens")
                }
                Err(_) => {}
            }
            if let Some(status) = served.child.try_wait()? {
                bail!("the server ended: {status}");
            }
        };
        loop {
            match served.client().get("/healthz").await {
                Ok(answer) if answer.status == 200 => return Ok(served),
                _ if started.elapsed() > START_MAX => {
                    bail!("the server does not answer at {}", served.address)
                }
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    /// A client of it.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(&self.address)
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn is_alive(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Ends it at once, as `kill -9` does.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// The most memory it ever held, bytes, where the system tells.
    #[must_use]
    pub fn memory_peak(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(
            line.trim()
                .trim_end_matches("kB")
                .trim()
                .parse::<u64>()
                .ok()?
                * 1024,
        )
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Already gone is as good as gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines to the end of the stream and reports the first address of the loopback among them.
fn watch(stream: impl std::io::Read + Send + 'static, found: mpsc::Sender<String>) {
    std::thread::spawn(move || {
        let echo = crate::is_set("HEADWATER_TEST_LOG");
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if echo {
                eprintln!("{line}");
            }
            if let Some(at) = line.find("127.0.0.1:") {
                let port: String = line[at + 10..]
                    .chars()
                    .take_while(char::is_ascii_digit)
                    .collect();
                if !port.is_empty() && port != "0" {
                    // Nobody listens any more once the first address was seen.
                    let _ = found.send(format!("127.0.0.1:{port}"));
                }
            }
        }
    });
}
