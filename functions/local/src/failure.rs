//! How a command fails: one line for people, one object for programs, an exit code that means
//! something.

use std::{io, process::ExitCode};

use ports::{Error, Kind};
use serde_json::json;
use settings::Complaint;

use crate::screen::{remark, say};

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// The whole chain on one line; empty when everything has been said already.
    pub message: String,
}

impl Failure {
    /// The project or its data has errors.
    pub fn project(message: impl Into<String>) -> Self {
        Self {
            code: 1,
            message: message.into(),
        }
    }

    /// The command was used wrongly.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            code: 2,
            message: message.into(),
        }
    }

    /// Something the command needs does not answer.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self {
            code: 3,
            message: message.into(),
        }
    }

    /// The program is at fault.
    pub fn defect(message: impl Into<String>) -> Self {
        Self {
            code: 3,
            message: message.into(),
        }
    }

    /// The project or its data has errors, and the command has shown them.
    #[must_use]
    pub fn shown() -> Self {
        Self::project("")
    }

    /// The same, with more to say.
    #[must_use]
    pub fn and(self, more: &str) -> Self {
        Self {
            message: self.message + more,
            ..self
        }
    }

    /// All complaints about settings.
    #[must_use]
    pub fn settings(complaints: &[Complaint]) -> Self {
        let lines: Vec<String> = complaints.iter().map(ToString::to_string).collect();
        Self::project(lines.join("\n"))
    }

    /// Tells the person or the program, and gives the exit code.
    #[must_use]
    pub fn report(&self, json: bool) -> ExitCode {
        if json && !self.message.is_empty() {
            // The exit code tells those who do not listen.
            let _ = say(&json!({ "error": self.message, "code": self.code }).to_string());
        } else {
            for line in self.message.lines() {
                let red = anstyle::AnsiColor::Red.on_default().bold();
                remark(&format!("{red}error{red:#}: {line}"));
            }
        }
        ExitCode::from(self.code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind {
            Kind::Invalid | Kind::NotFound | Kind::Conflict | Kind::TooLarge | Kind::Corrupt => 1,
            Kind::Unavailable => 3,
        };
        Self {
            code,
            message: error.chain().replace('\n', " "),
        }
    }
}

/// Writing to the terminal or a pipe failed. A reader that has seen enough (`| head`) is no
/// failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self {
                code: 0,
                message: String::new(),
            };
        }
        Self::unavailable(format!("write the answer: {error}"))
    }
}
