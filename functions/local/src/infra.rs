//! The folder `infra/`: where it is, and its scripts, which speak to AWS.
//!
//! The scripts are Python because what they need (boto3) is, and because they must work without this
//! program. They answer with JSON on stdout and tell their progress on stderr.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{cli::Target, failure::Failure};

/// What the folder is known by.
const MARK: &str = "deploy.py";

/// A folder of templates and scripts.
#[derive(Clone, Debug)]
pub struct Infra {
    folder: PathBuf,
}

impl Infra {
    /// The named folder; else `infra` in or beside the current folder, or above this program.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(named: Option<&Path>) -> Result<Self, Failure> {
        if let Some(folder) = named {
            if folder.join(MARK).is_file() {
                let folder = folder.to_owned();
                return Ok(Self { folder });
            }
            return Err(Failure::usage(format!(
                "`{}` has no `{MARK}`: --infra names the folder `infra` of the repository",
                folder.display()
            )));
        }
        let program = std::env::current_exe().unwrap_or_default();
        let near = ["infra", "../infra"].map(PathBuf::from).into_iter();
        let above = program.ancestors().skip(1).map(|dir| dir.join("infra"));
        near.chain(above)
            .find(|folder| folder.join(MARK).is_file())
            .map(|folder| Self { folder })
            .ok_or_else(|| {
                Failure::usage(
                    "there is no folder `infra` here, beside here, or above this program: name it with --infra",
                )
            })
    }

    /// The folder that `infra` lies in: the repository's.
    ///
    /// # Errors
    /// When the system does not tell the current folder.
    pub fn root(&self) -> Result<PathBuf, Failure> {
        // Through the system, because the parent of `../infra` is not `..`'s parent by name alone.
        let whole = self.folder.canonicalize()?;
        Ok(whole.parent().map(Path::to_owned).unwrap_or(whole))
    }

    /// Runs a script; answers the JSON that it prints, and hears each line of its progress.
    ///
    /// # Errors
    /// What the script says went wrong, with its exit code.
    pub fn run(
        &self,
        script: &str,
        target: &Target,
        arguments: &[OsString],
        mut hear: impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<Value, Failure> {
        let mut command = Command::new("python3");
        command
            .arg(self.folder.join(script))
            .args(["--json", "--name", &target.name]);
        for (flag, value) in [
            ("--region", &target.region),
            ("--endpoint", &target.endpoint),
        ] {
            command.args(value.iter().flat_map(|value| [flag, value.as_str()]));
        }
        let mut child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| {
                Failure::unavailable(format!(
                    "start `python3`, which {script} needs (3.10 or newer): {error}"
                ))
            })?;
        let (mut out, err) = (child.stdout.take(), child.stderr.take());
        // On a thread of its own: a script that fills one pipe while we read the other would stand still.
        let answer = std::thread::spawn(move || {
            let mut text = String::new();
            let read = out.as_mut().map(|out| out.read_to_string(&mut text));
            read.transpose().map(|_| text)
        });
        let mut heard = Ok(());
        for line in err.into_iter().flat_map(|err| BufReader::new(err).lines()) {
            // A reader of ours that has gone away does not stop a deployment halfway.
            let told = hear(&line?);
            heard = heard.and(told);
        }
        let status = child.wait()?;
        let text = answer
            .join()
            .map_err(|_| Failure::defect(format!("the answer of {script} was not read")))??;
        heard?;
        let Ok(value) = serde_json::from_str::<Value>(&text) else {
            let code = status.code().unwrap_or(3);
            let message =
                format!("{script} gave no answer and ended with {status}; what it said is above");
            return Err(if code == 2 {
                Failure::usage(message)
            } else {
                Failure::defect(message)
            });
        };
        if let Some(error) = value.get("error").and_then(Value::as_str) {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Err(Failure {
                code: code.filter(|code| (1..=3).contains(code)).unwrap_or(3),
                message: error.to_owned(),
            });
        }
        Ok(value)
    }
}

/// Reads an answer of a script.
///
/// # Errors
/// When script and program do not fit together.
pub fn read<T: serde::de::DeserializeOwned>(answer: &Value) -> Result<T, Failure> {
    serde::Deserialize::deserialize(answer).map_err(|error: serde_json::Error| {
        Failure::defect(format!(
            "the scripts in `infra` and this program are of different versions: {error}"
        ))
    })
}
