//! The messages between the server and the launcher of a sandbox. The server first sends an [`EnforcementPlan`](crate::EnforcementPlan), and the
//! launcher answers with a [`BuildReply`]. Then each [`StartRequest`] starts a command. Its answer, a [`StartReply`],
//! comes over a socket of its own, which travels with the request, so that commands can start at the same time.

use std::ffi::CString;

use crate::codec::{MalformedMessage, MessageReader, MessageWriter};

/// The largest message. Arguments and environment of a command are limited by the kernel to a fraction of that.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// A whole message with its length, which the process that becomes the command sends before the [`StartReply`]. With it come the descriptors
/// that the server keeps while the command runs: in a sandbox of namespaces the lifeline (see [`StartAnswer`](crate::StartAnswer)), and
/// then the descriptor of the filter, if the kernel gives one.
pub(crate) const KEPT_DESCRIPTORS_MESSAGE: [u8; 5] = {
    let [one, two, three, four] = 1_u32.to_ne_bytes();
    [one, two, three, four, KEPT_DESCRIPTORS_KIND]
};

/// The first byte of that message. A [`StartReply`] begins with another one.
pub(crate) const KEPT_DESCRIPTORS_KIND: u8 = 2;

/// An enum whose variants travel as one byte, which is their position in the enum.
macro_rules! numbered_enum {
    ($(#[$about:meta])* pub enum $name:ident { $($(#[$about_variant:meta])* $variant:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name { $($(#[$about_variant])* $variant,)* }

        impl $name {
            const ALL: &[Self] = &[$(Self::$variant),*];

            fn from_number(number: u8) -> Result<Self, MalformedMessage> {
                Self::ALL.get(usize::from(number)).copied().ok_or(MalformedMessage)
            }
        }
    };
}

/// The answer to a plan. Public for the fuzz target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildReply {
    /// The sandbox is ready. If it is made of namespaces, descriptors of its root directory and of its mount namespace come with the
    /// message, and, for [`SandboxNetwork::LoopbackOnly`](crate::SandboxNetwork), a listening socket.
    Ready {
        /// Whether commands get a `/proc` of their own. If not, `/proc` is empty.
        has_proc: bool,
    },
    /// A step of the set-up failed.
    Failed(BuildFailure),
}

/// Why the launcher could not make a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildFailure {
    /// The step that failed.
    pub step: BuildStep,
    /// The error number of the kernel.
    pub errno: i32,
    /// The path or namespace that the step worked on, as words that follow those for the step. Empty if there is none.
    pub detail: String,
}

numbered_enum! {
    /// The steps of the set-up that can fail.
    pub enum BuildStep {
        /// Making the namespaces for users, mounts, IPC and network.
        Namespaces,
        /// Mapping the user into the namespaces, and making the user namespace of the commands.
        UserMapping,
        /// Making the file tree that the sandbox begins with.
        BaseTree,
        /// A mount of the plan.
        Mount,
        /// The directories `/dev` and `/proc`.
        DeviceFiles,
        /// Making the new tree the root directory.
        ChangeRoot,
        /// Giving up capabilities.
        Capabilities,
        /// Setting up the loopback interface and the socket that listens on it.
        Loopback,
        /// Making the rules of Landlock, in a sandbox without namespaces.
        Landlock,
        /// Confining a process in the way in which commands are confined.
        Confinement,
    }
}

/// A command to start. Its descriptors travel with the message: the socket for the answer, then stdin, stdout and
/// stderr, then the extra descriptor and the file of the cgroup if there are any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartRequest {
    /// Paths of the program, in the order in which they are tried.
    pub candidates: Vec<CString>,
    /// Whether the candidates come from a search along `PATH`: then a candidate that is missing is skipped.
    pub searched: bool,
    /// The arguments, with the name of the program first.
    pub argv: Vec<CString>,
    /// The whole environment, each entry as `NAME=VALUE`.
    pub env: Vec<CString>,
    /// The working directory, a path in the sandbox.
    pub cwd: CString,
    /// The file mode creation mask. None: that of the server.
    pub umask: Option<u32>,
    /// The resource limit that is the tag, by which the server finds the process: number of the resource, soft and hard limit. It is
    /// set before anything else. None: processes have no tags.
    pub tag: Option<(u32, u64, u64)>,
    /// Further resource limits, in the order in which they are set.
    pub limits: Vec<(u32, u64, u64)>,
    /// Whether stdin is a terminal that becomes the controlling terminal of the command.
    pub terminal: bool,
    /// The number that the extra descriptor gets in the command. None: there is no extra descriptor.
    pub extra_descriptor: Option<u32>,
    /// Whether the file `cgroup.procs` of a cgroup comes with the message. The command enters this cgroup.
    pub enters_cgroup: bool,
}

/// The answer to a [`StartRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartReply {
    /// The kernel executes the program.
    Started {
        /// The process id in the server's PID namespace. The process is a child of the server.
        pid: i32,
    },
    /// The command was not started.
    Failed {
        /// The step that failed.
        stage: StartStage,
        /// The error number of the kernel.
        errno: i32,
        /// The process that has failed and ended. It is a child of the server, which has to reap it. None if no
        /// process was made.
        pid: Option<i32>,
    },
}

numbered_enum! {
    /// The steps of a start that can fail.
    pub enum StartStage {
        /// Making the namespaces and processes of the command.
        Isolate,
        /// Entering the working directory.
        WorkingDirectory,
        /// Setting up the tag, the cgroup, descriptors, limits and the terminal.
        Prepare,
        /// Giving up privileges, applying Landlock, installing the seccomp filter, and sending descriptors to the server.
        Confine,
        /// Executing the program.
        Execute,
        /// The server has cancelled the start.
        Cancelled,
    }
}

impl BuildReply {
    /// The bytes of the message, without the length before them. Public for the fuzz target.
    pub fn encode(&self) -> Vec<u8> {
        let mut message = MessageWriter::default();
        match self {
            Self::Ready { has_proc } => {
                message.byte(0);
                message.flag(*has_proc);
            }
            Self::Failed(failure) => {
                message.byte(1);
                message.byte(failure.step as u8);
                message.number(u64::from(failure.errno.unsigned_abs()));
                message.bytes(failure.detail.as_bytes());
            }
        }
        message.finish()
    }

    /// Reads an answer from the bytes of a message. Public for the fuzz target.
    pub fn decode(bytes: &[u8]) -> Result<Self, MalformedMessage> {
        let mut message = MessageReader::new(bytes);
        let reply = match message.byte()? {
            0 => Self::Ready { has_proc: message.flag()? },
            1 => Self::Failed(BuildFailure {
                step: BuildStep::from_number(message.byte()?)?,
                errno: message.number_as()?,
                detail: String::from_utf8_lossy(message.bytes()?).into_owned(),
            }),
            _ => return Err(MalformedMessage),
        };
        message.end()?;
        Ok(reply)
    }
}

impl StartRequest {
    /// The bytes of the message, without the length before them. Public for tests and for the fuzz target.
    pub fn encode(&self) -> Vec<u8> {
        let mut message = MessageWriter::default();
        let strings = |message: &mut MessageWriter, values: &[CString]| {
            message.list(values, |message, value| message.bytes(value.as_bytes()));
        };
        strings(&mut message, &self.candidates);
        message.flag(self.searched);
        strings(&mut message, &self.argv);
        strings(&mut message, &self.env);
        message.bytes(self.cwd.as_bytes());
        message.option(self.umask, |message, mask| message.number(mask.into()));
        let limit = |message: &mut MessageWriter, (resource, soft, hard): (u32, u64, u64)| {
            message.number(resource.into());
            message.number(soft);
            message.number(hard);
        };
        message.option(self.tag, limit);
        message.list(&self.limits, |message, values| limit(message, *values));
        message.flag(self.terminal);
        message.option(self.extra_descriptor, |message, number| message.number(number.into()));
        message.flag(self.enters_cgroup);
        message.finish()
    }

    /// Reads a request from the bytes of a message. Public for tests and for the fuzz target.
    pub fn decode(bytes: &[u8]) -> Result<Self, MalformedMessage> {
        let mut message = MessageReader::new(bytes);
        let request = Self {
            candidates: message.list(MessageReader::c_string)?,
            searched: message.flag()?,
            argv: message.list(MessageReader::c_string)?,
            env: message.list(MessageReader::c_string)?,
            cwd: message.c_string()?,
            umask: message.option(MessageReader::number_as)?,
            tag: message.option(read_limit)?,
            limits: message.list(read_limit)?,
            terminal: message.flag()?,
            extra_descriptor: message.option(MessageReader::number_as)?,
            enters_cgroup: message.flag()?,
        };
        message.end()?;
        Ok(request)
    }
}

fn read_limit(message: &mut MessageReader<'_>) -> Result<(u32, u64, u64), MalformedMessage> {
    Ok((message.number_as()?, message.number()?, message.number()?))
}

impl StartReply {
    /// The bytes of the message, without the length before them. Public for tests and for the fuzz target.
    pub fn encode(self) -> Vec<u8> {
        let mut message = MessageWriter::default();
        match self {
            Self::Started { pid } => {
                message.byte(0);
                message.number(u64::from(pid.unsigned_abs()));
            }
            Self::Failed { stage, errno, pid } => {
                message.byte(1);
                message.byte(stage as u8);
                message.number(u64::from(errno.unsigned_abs()));
                message.option(pid, |message, pid| message.number(u64::from(pid.unsigned_abs())));
            }
        }
        message.finish()
    }

    /// Reads an answer from the bytes of a message. Public for tests and for the fuzz target.
    pub fn decode(bytes: &[u8]) -> Result<Self, MalformedMessage> {
        let mut message = MessageReader::new(bytes);
        let reply = match message.byte()? {
            0 => Self::Started { pid: message.number_as()? },
            1 => Self::Failed {
                stage: StartStage::from_number(message.byte()?)?,
                errno: message.number_as()?,
                pid: message.option(MessageReader::number_as)?,
            },
            _ => return Err(MalformedMessage),
        };
        message.end()?;
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::file_id::FileId;
    use crate::landlock_plan::{EnforcementPlan, LandlockFiles, LandlockPlan, ReadablePath};
    use crate::plan::{BaseTree, MountKind, PlannedMount, SandboxNetwork, SandboxPlan};

    fn strings() -> impl Strategy<Value = Vec<CString>> {
        prop::collection::vec(c_string(), 0..4)
    }

    fn c_string() -> impl Strategy<Value = CString> {
        prop::collection::vec(1_u8.., 0..12).prop_map(|bytes| CString::new(bytes).unwrap())
    }

    fn path() -> impl Strategy<Value = PathBuf> {
        use std::os::unix::ffi::OsStringExt as _;
        c_string().prop_map(|name| PathBuf::from("/").join(std::ffi::OsString::from_vec(name.into_bytes())))
    }

    fn requests() -> impl Strategy<Value = StartRequest> {
        let texts = (strings(), strings(), strings(), c_string());
        let limits = prop::collection::vec(any::<(u32, u64, u64)>(), 0..3);
        let rest = any::<(bool, Option<u32>, bool, Option<u32>, bool, Option<(u32, u64, u64)>)>();
        (texts, limits, rest).prop_map(|((candidates, argv, env, cwd), limits, rest)| StartRequest {
            candidates,
            searched: rest.0,
            argv,
            env,
            cwd,
            umask: rest.1,
            tag: rest.5,
            limits,
            terminal: rest.2,
            extra_descriptor: rest.3,
            enters_cgroup: rest.4,
        })
    }

    fn ids() -> impl Strategy<Value = FileId> {
        any::<(u64, u64, u64)>().prop_map(|(device, inode, born)| FileId { device, inode, born })
    }

    fn plans() -> impl Strategy<Value = EnforcementPlan> {
        let kind = prop_oneof![
            select(vec![
                MountKind::Writable,
                MountKind::ReadOnly,
                MountKind::PinnedLink,
                MountKind::DeniedDirectory,
                MountKind::DeniedFile,
                MountKind::PassableDirectory,
                MountKind::MadeDirectory,
                MountKind::MadeFile,
            ]),
            path().prop_map(MountKind::MadeLink),
        ];
        let mount = (path(), kind, prop::option::of(ids())).prop_map(|(path, kind, source)| PlannedMount {
            path,
            kind,
            source,
        });
        let base = select(vec![BaseTree::ReadOnlyHost, BaseTree::WritableHost, BaseTree::Empty]);
        let network = select(vec![SandboxNetwork::Host, SandboxNetwork::None, SandboxNetwork::LoopbackOnly]);
        let namespaces = (base, network, prop::collection::vec(mount, 0..6))
            .prop_map(|(base, network, mounts)| SandboxPlan { base, mounts, network }.into());
        let readable = (path(), ids()).prop_map(|(path, source)| ReadablePath { path, source });
        let files = prop_oneof![
            select(vec![LandlockFiles::Unrestricted, LandlockFiles::ReadEverything]),
            prop::collection::vec(readable, 0..4).prop_map(LandlockFiles::ReadSome),
        ];
        let landlock = (files, select(vec![SandboxNetwork::Host, SandboxNetwork::None]))
            .prop_map(|(files, network)| EnforcementPlan::Landlock(LandlockPlan { files, network }));
        prop_oneof![2 => namespaces, 1 => landlock]
    }

    /// Decoding gives the same value back. A message that is cut or has an extra byte is refused.
    fn check<T: PartialEq + std::fmt::Debug>(
        value: &T,
        bytes: &[u8],
        decode: impl Fn(&[u8]) -> Result<T, MalformedMessage>,
    ) -> Result<(), TestCaseError> {
        prop_assert_eq!(&decode(bytes).unwrap(), value);
        for length in 0..bytes.len() {
            prop_assert_eq!(decode(&bytes[..length]), Err(MalformedMessage), "{} bytes", length);
        }
        prop_assert_eq!(decode(&[bytes, &[0]].concat()), Err(MalformedMessage));
        Ok(())
    }

    proptest! {
        #[test]
        fn requests_are_read_as_they_were_written(request in requests()) {
            check(&request, &request.encode(), StartRequest::decode)?;
        }

        #[test]
        fn plans_are_read_as_they_were_written(plan in plans()) {
            check(&plan, &plan.encode(), EnforcementPlan::decode)?;
        }

        #[test]
        fn answers_are_read_as_they_were_written(
            pid in 1..i32::MAX, errno in 0..4096_i32, stage in select(StartStage::ALL), step in select(BuildStep::ALL),
            has_pid: bool, has_proc: bool, detail: String,
        ) {
            let started = StartReply::Started { pid };
            check(&started, &started.encode(), StartReply::decode)?;
            let failed = StartReply::Failed { stage, errno, pid: has_pid.then_some(pid) };
            check(&failed, &failed.encode(), StartReply::decode)?;
            let ready = BuildReply::Ready { has_proc };
            check(&ready, &ready.encode(), BuildReply::decode)?;
            let refused = BuildReply::Failed(BuildFailure { step, errno, detail });
            check(&refused, &refused.encode(), BuildReply::decode)?;
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = (StartRequest::decode(&bytes), EnforcementPlan::decode(&bytes));
            let _ = (StartReply::decode(&bytes), BuildReply::decode(&bytes));
        }
    }

    #[test]
    fn lists_that_are_longer_than_the_message_are_refused_before_memory_is_taken() {
        let plan = SandboxPlan { base: BaseTree::Empty, mounts: Vec::new(), network: SandboxNetwork::None };
        let mut bytes = EnforcementPlan::from(plan.clone()).encode();
        let at = bytes.len() - 8;
        bytes[at..].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert_eq!(EnforcementPlan::decode(&bytes), Err(MalformedMessage));
        let relative = PlannedMount { path: "relative".into(), kind: MountKind::Writable, source: None };
        let plan = SandboxPlan { mounts: vec![relative], ..plan };
        assert_eq!(EnforcementPlan::decode(&EnforcementPlan::from(plan).encode()), Err(MalformedMessage));
    }
}
