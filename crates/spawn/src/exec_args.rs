//! The arguments and the environment of a child in the form that `execve` takes. Strings that cannot be passed in this form are refused
//! here, before anything is started. Looking up the program is done in `lookup`.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use libc::c_char;

use crate::command::{SpawnCommand, Stdio};
use crate::error::SpawnError;

/// Runs files whose format the kernel does not recognise, as `execvp` and shells do.
const SHELL: &CStr = c"/bin/sh";

/// A null-terminated array of pointers to C strings, together with the strings.
pub(crate) struct CStringArray {
    pub(crate) strings: Vec<CString>,
    pointers: Vec<*mut c_char>,
}

// SAFETY: the pointers are to strings that the value owns and never changes.
unsafe impl Send for CStringArray {}
// SAFETY: as above.
unsafe impl Sync for CStringArray {}

impl CStringArray {
    pub(crate) fn new(strings: Vec<CString>) -> Self {
        let pointers =
            strings.iter().map(|string| string.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect();
        Self { strings, pointers }
    }

    pub(crate) fn as_ptr(&self) -> *const *mut c_char {
        self.pointers.as_ptr()
    }
}

/// The arguments of `execve` other than the path.
pub(crate) struct ExecArgs {
    pub(crate) argv: CStringArray,
    pub(crate) env: CStringArray,
}

impl ExecArgs {
    pub(crate) fn new(command: &SpawnCommand) -> Result<Self, SpawnError> {
        let program = program(command)?;
        let first = command.arg0.as_deref().unwrap_or(program);
        let arguments = command.argv.iter().skip(1).map(|argument| c_string("argv", argument));
        let argv = [c_string("argv", first)].into_iter().chain(arguments).collect::<Result<_, _>>()?;
        let env = command.env.iter().map(|(name, value)| env_entry(name, value)).collect::<Result<_, _>>()?;
        Ok(Self { argv: CStringArray::new(argv), env: CStringArray::new(env) })
    }

    /// The path and the arguments that run `file` as a shell script.
    pub(crate) fn as_script(&self, file: &CStr) -> (&'static CStr, CStringArray) {
        let arguments = self.argv.strings.iter().skip(1).cloned();
        let argv = [SHELL.to_owned(), file.to_owned()].into_iter().chain(arguments);
        (SHELL, CStringArray::new(argv.collect()))
    }
}

/// The program of a command. Fails if the command has none, or an empty one.
pub(crate) fn program(command: &SpawnCommand) -> Result<&OsStr, SpawnError> {
    match command.argv.first() {
        Some(program) if !program.is_empty() => Ok(program),
        _ => Err(match command.stdio {
            Stdio::Pipes { .. } | Stdio::Report { .. } | Stdio::Socket { .. } => SpawnError::MissingPipeProgram,
            Stdio::Pty(_) => SpawnError::MissingPtyProgram,
        }),
    }
}

pub(crate) fn c_string(place: &'static str, text: &OsStr) -> Result<CString, SpawnError> {
    CString::new(text.as_bytes()).map_err(|_nul| SpawnError::NulByte { place })
}

fn env_entry(name: &OsStr, value: &OsStr) -> Result<CString, SpawnError> {
    if name.is_empty() || name.as_bytes().contains(&b'=') {
        return Err(SpawnError::EnvironmentName { name: name.to_owned() });
    }
    let entry = [name.as_bytes(), b"=", value.as_bytes()].concat();
    CString::new(entry).map_err(|_nul| SpawnError::NulByte { place: "env" })
}
