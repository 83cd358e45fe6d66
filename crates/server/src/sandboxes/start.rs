//! Starts one command in a sandbox: what the crate `spawn` asks for becomes a request to the launcher of the sandbox, and its
//! answer becomes a child of this process.

use std::ffi::CString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;

use parking_lot::Mutex;
use sandbox::{StartReply, StartRequest, StartStage};
use spawn::{ChildMaker, ChildRequest, MadeChild, MakeError, StartConnection};

use super::SessionSandbox;

/// The start of one command in a sandbox.
pub(crate) struct SandboxStart {
    pub(crate) sandbox: Arc<SessionSandbox>,
    /// The descriptor through which the kernel reports the refused system calls of the command, once it runs.
    filter: Mutex<Option<OwnedFd>>,
}

impl SandboxStart {
    pub(crate) fn new(sandbox: Arc<SessionSandbox>) -> Self {
        Self { sandbox, filter: Mutex::default() }
    }

    /// The descriptor through which the kernel reports the refused system calls of the command. None before the command runs, and if the
    /// kernel reports nothing.
    pub(crate) fn take_filter(&self) -> Option<OwnedFd> {
        self.filter.lock().take()
    }
}

impl ChildMaker for SandboxStart {
    fn make(&self, child: &ChildRequest<'_>, connection: StartConnection<'_>) -> Result<MadeChild, MakeError> {
        const ACTION: &str = "start the process in its sandbox";
        let cwd = CString::new(child.cwd.as_os_str().as_bytes())
            .map_err(|nul| MakeError::Cwd(io::Error::new(io::ErrorKind::InvalidInput, nul)))?;
        let request = StartRequest {
            candidates: child.candidates.to_vec(),
            searched: child.searched,
            argv: child.argv.to_vec(),
            env: child.env.to_vec(),
            cwd,
            umask: child.umask,
            tag: child.tag,
            limits: child.limits.to_vec(),
            terminal: child.terminal,
            extra_descriptor: child.extra.and_then(|(_, number)| u32::try_from(number).ok()),
            enters_cgroup: child.cgroup_procs.is_some(),
        };
        let others = [child.extra.map(|(descriptor, _)| descriptor), child.cgroup_procs];
        let descriptors: Vec<BorrowedFd<'_>> =
            child.standard.into_iter().chain(others.into_iter().flatten()).collect();
        let answer = self
            .sandbox
            .resident
            .start(&request, connection.server_end, connection.maker_end, &descriptors)
            .map_err(|error| MakeError::Resource(ACTION, error))?;
        self.sandbox.touch();
        match answer.reply {
            StartReply::Started { pid } => {
                *self.filter.lock() = answer.filter;
                let lifeline = answer.lifeline.map(Arc::new);
                if let Some(lifeline) = &lifeline {
                    self.sandbox.commands.add(Arc::clone(lifeline));
                }
                Ok(MadeChild { pid, lifeline })
            }
            StartReply::Failed { stage, errno, .. } => {
                let error = io::Error::from_raw_os_error(errno);
                Err(match stage {
                    StartStage::WorkingDirectory => MakeError::Cwd(error),
                    StartStage::Execute => MakeError::Program(error),
                    StartStage::Cancelled => MakeError::Cancelled,
                    StartStage::Isolate => {
                        let explained = sandbox::explain_missing_namespaces(errno).map(io::Error::other);
                        MakeError::Resource(ACTION, explained.unwrap_or(error))
                    }
                    StartStage::Prepare | StartStage::Confine => MakeError::Resource(ACTION, error),
                })
            }
        }
    }
}
