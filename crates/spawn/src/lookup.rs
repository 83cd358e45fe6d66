//! Finds the file of a program, as `execvp` would do in the child: a name with a slash is used as it is, and any other name is searched
//! along the `PATH` of the child. Relative paths are resolved against the working directory of the child, never against that of the server.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Access, AtFlags, FileType};
use rustix::io::Errno;

use crate::error::SpawnError;
use crate::exec_args::c_string;

/// The directories to search if the child has no `PATH`. The same as in glibc.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The paths to try, in this order. A path that comes from a search is checked before it is executed. A path that was given is not, because
/// the error of the kernel is the most exact one.
pub(crate) struct ProgramCandidates {
    pub(crate) paths: Vec<CString>,
    pub(crate) searched: bool,
}

impl ProgramCandidates {
    pub(crate) fn new(program: &OsStr, env: &[(OsString, OsString)]) -> Result<Self, SpawnError> {
        if program.as_bytes().contains(&b'/') {
            return Ok(Self { paths: vec![c_string("argv", program)?], searched: false });
        }
        let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        let directories = path.unwrap_or(OsStr::new(DEFAULT_PATH)).as_bytes().split(|byte| *byte == b':');
        let paths =
            directories.map(|directory| c_string("argv", &joined(directory, program))).collect::<Result<_, _>>()?;
        Ok(Self { paths, searched: true })
    }

    /// Calls `execute` with each path until a call succeeds or fails with an error that ends the search. Returns the same error as
    /// `execvp`.
    pub(crate) fn first_that_runs<T>(
        &self,
        cwd: BorrowedFd<'_>,
        mut execute: impl FnMut(&CString) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let mut refused = false;
        for path in &self.paths {
            let attempt =
                if self.searched { check_runnable(cwd, path).and_then(|()| execute(path)) } else { execute(path) };
            match attempt {
                Err(error) if !self.searched => return Err(error),
                Err(Errno::ACCESS) => refused = true,
                Err(error) if continues_search(error) => {}
                other => return other,
            }
        }
        Err(if refused { Errno::ACCESS } else { Errno::NOENT })
    }
}

fn joined(directory: &[u8], program: &OsStr) -> OsString {
    // An empty element means the working directory. With `./` in front, a script called `-c` is not taken for an option of the shell.
    let directory = if directory.is_empty() { b"." } else { directory };
    OsStr::from_bytes(&[directory, b"/", program.as_bytes()].concat()).to_owned()
}

/// Checks a path before a child is made, so that no child is made for a directory of `PATH` that lacks the program.
fn check_runnable(cwd: BorrowedFd<'_>, path: &CString) -> Result<(), Errno> {
    let stat = rustix::fs::statat(cwd, path, AtFlags::empty())?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::ACCESS);
    }
    rustix::fs::accessat(cwd, path, Access::EXEC_OK, AtFlags::empty())
}

fn continues_search(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::STALE | Errno::NODEV | Errno::TIMEDOUT | Errno::NAMETOOLONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(program: &str, path: Option<&str>) -> Vec<String> {
        let env: Vec<_> = path.map(|path| ("PATH".into(), path.into())).into_iter().collect();
        let candidates = ProgramCandidates::new(OsStr::new(program), &env).unwrap();
        candidates.paths.into_iter().map(|path| path.into_string().unwrap()).collect()
    }

    #[test]
    fn a_slash_prevents_the_search() {
        assert_eq!(paths("./tool", Some("/bin")), ["./tool"]);
    }

    #[test]
    fn empty_elements_are_the_working_directory() {
        assert_eq!(paths("tool", Some(":/opt/bin:")), ["./tool", "/opt/bin/tool", "./tool"]);
        assert_eq!(paths("tool", Some("")), ["./tool"]);
    }

    #[test]
    fn without_path_the_default_is_searched() {
        assert_eq!(paths("tool", None), ["/bin/tool", "/usr/bin/tool"]);
    }
}
