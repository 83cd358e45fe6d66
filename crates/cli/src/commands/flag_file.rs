//! The file that `--ca-file` or `--client-token-file` names, or the environment variable of such a flag. A file that
//! the user has typed counts more than one of a variable, which may have been set long ago for another server.
//! [`destination`](super::destination) decides which environment gets the file.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::parser::ValueSource;

/// Where the path of the file comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagOrigin {
    /// The flag is on the command line.
    CommandLine,
    /// The variable of the flag is set.
    Variable,
}

/// A file that a flag or its variable names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlagFile {
    pub(crate) path: PathBuf,
    pub(crate) origin: FlagOrigin,
    /// The name of the flag or of the variable, for error messages.
    pub(crate) setting: String,
}

impl FlagFile {
    /// Whether the user has typed the flag in this command.
    pub(crate) fn is_typed(&self) -> bool {
        self.origin == FlagOrigin::CommandLine
    }
}

/// Parses the value of such a flag.
#[derive(Clone, Debug)]
pub(crate) struct FlagFileParser;

impl TypedValueParser for FlagFileParser {
    type Value = FlagFile;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<FlagFile, clap::Error> {
        self.parse_ref_(command, argument, value, ValueSource::CommandLine)
    }

    fn parse_ref_(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
        source: ValueSource,
    ) -> Result<FlagFile, clap::Error> {
        let path = PathBufValueParser::new().parse_ref(command, argument, value)?;
        let flag = || format!("--{}", argument.and_then(clap::Arg::get_long).unwrap_or_default());
        let variable = argument.and_then(clap::Arg::get_env).filter(|_| source == ValueSource::EnvVariable);
        let (origin, setting) = match variable {
            Some(name) => (FlagOrigin::Variable, name.to_string_lossy().into_owned()),
            None => (FlagOrigin::CommandLine, flag()),
        };
        Ok(FlagFile { path, origin, setting })
    }
}
