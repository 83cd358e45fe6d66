//! The environment variables in which credentials are looked for, and the directories that they name. Start with
//! [`CredentialVariables`].

use std::path::PathBuf;

/// Names and values of environment variables, usually those of this process.
#[derive(Clone, Copy)]
pub(crate) struct CredentialVariables<'a>(pub(crate) &'a [(String, String)]);

impl<'a> CredentialVariables<'a> {
    /// The value of a variable, which may be empty.
    pub(crate) fn get(self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value without white space at its ends. `None` if nothing is left.
    pub(crate) fn non_blank(self, name: &str) -> Option<&'a str> {
        self.get(name).map(str::trim).filter(|value| !value.is_empty())
    }

    /// The directory with the configuration of this program. `None` if `EXEC_SERVER_HOME` is a relative path: secrets
    /// must not go to whatever directory a command is started in, and not to another place than the user has named.
    pub(crate) fn exec_server_home(self) -> Option<PathBuf> {
        if let Some(home) = self.directory("EXEC_SERVER_HOME") {
            return Some(home).filter(|home| home.is_absolute());
        }
        self.absolute("XDG_CONFIG_HOME")
            .map(|config| config.join("exec-server"))
            .or_else(|| self.absolute("HOME").map(|home| home.join(".config/exec-server")))
    }

    /// The directory in which `codex` keeps its sign-in.
    pub(crate) fn codex_home(self) -> Option<PathBuf> {
        self.directory("CODEX_HOME").or_else(|| self.absolute("HOME").map(|home| home.join(".codex")))
    }

    fn directory(self, name: &str) -> Option<PathBuf> {
        self.get(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// The XDG rules say that a relative path is ignored.
    fn absolute(self, name: &str) -> Option<PathBuf> {
        self.directory(name).filter(|path| path.is_absolute())
    }
}
