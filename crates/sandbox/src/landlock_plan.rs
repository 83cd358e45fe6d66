//! The plan of a sandbox without namespaces: Landlock restricts access to files, signals and abstract Unix sockets, and seccomp
//! filters restrict the rest. Landlock can only allow more access below a path than above it, so few policies can be
//! planned in this way; see [`plan_landlock`](crate::plan_landlock). This module has only values.

use std::path::PathBuf;

use crate::codec::{MalformedMessage, MessageReader, MessageWriter};
use crate::file_id::FileId;
use crate::plan::{SandboxNetwork, SandboxPlan};

/// How a sandbox is enforced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EnforcementPlan {
    /// By namespaces and mounts, for every policy.
    Namespaces(SandboxPlan),
    /// By Landlock, for policies that allow writing nowhere or everywhere.
    Landlock(LandlockPlan),
}

/// The set-up of a sandbox without namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LandlockPlan {
    /// What commands may do with files.
    pub files: LandlockFiles,
    /// The network of the commands. Never [`SandboxNetwork::LoopbackOnly`].
    pub network: SandboxNetwork,
}

/// What commands may do with files. Devices such as `/dev/null` can be written in any case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LandlockFiles {
    /// Everything that the user may do.
    Unrestricted,
    /// All files may be read, and none changed.
    ReadEverything,
    /// These files, and those below these directories, may be read, and none changed.
    ReadSome(Vec<ReadablePath>),
}

/// A file or directory of the host that may be read, with everything below it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadablePath {
    /// An absolute path without symbolic links.
    pub path: PathBuf,
    /// What was at the path when the plan was made. The plan is out of date if another file has taken its place.
    pub source: FileId,
}

impl From<SandboxPlan> for EnforcementPlan {
    fn from(plan: SandboxPlan) -> Self {
        Self::Namespaces(plan)
    }
}

impl From<LandlockPlan> for EnforcementPlan {
    fn from(plan: LandlockPlan) -> Self {
        Self::Landlock(plan)
    }
}

impl EnforcementPlan {
    /// The bytes of the message to the launcher, without the length before them. Public for the fuzz target.
    pub fn encode(&self) -> Vec<u8> {
        let mut message = MessageWriter::default();
        match self {
            Self::Namespaces(plan) => {
                message.byte(0);
                plan.write(&mut message);
            }
            Self::Landlock(plan) => {
                message.byte(1);
                plan.write(&mut message);
            }
        }
        message.finish()
    }

    /// Reads a plan from the bytes of a message. Public for the fuzz target.
    pub fn decode(bytes: &[u8]) -> Result<Self, MalformedMessage> {
        let mut message = MessageReader::new(bytes);
        let plan = match message.byte()? {
            0 => Self::Namespaces(SandboxPlan::read(&mut message)?),
            1 => Self::Landlock(LandlockPlan::read(&mut message)?),
            _ => return Err(MalformedMessage),
        };
        message.end()?;
        Ok(plan)
    }
}

impl LandlockPlan {
    fn write(&self, message: &mut MessageWriter) {
        message.flag(self.network == SandboxNetwork::None);
        match &self.files {
            LandlockFiles::Unrestricted => message.byte(0),
            LandlockFiles::ReadEverything => message.byte(1),
            LandlockFiles::ReadSome(paths) => {
                message.byte(2);
                message.list(paths, |message, readable| {
                    message.path(&readable.path);
                    readable.source.write(message);
                });
            }
        }
    }

    fn read(message: &mut MessageReader<'_>) -> Result<Self, MalformedMessage> {
        let network = if message.flag()? { SandboxNetwork::None } else { SandboxNetwork::Host };
        let files = match message.byte()? {
            0 => LandlockFiles::Unrestricted,
            1 => LandlockFiles::ReadEverything,
            2 => LandlockFiles::ReadSome(message.list(|message| {
                let path = message.path()?;
                if !path.is_absolute() {
                    return Err(MalformedMessage);
                }
                Ok(ReadablePath { path, source: FileId::read(message)? })
            })?),
            _ => return Err(MalformedMessage),
        };
        Ok(Self { files, network })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::BaseTree;

    #[test]
    fn plans_survive_the_way_to_the_launcher() {
        let path =
            |path: &str, inode| ReadablePath { path: path.into(), source: FileId { device: 7, inode, born: 9 } };
        let landlock = |files, network| EnforcementPlan::Landlock(LandlockPlan { files, network });
        let some = LandlockFiles::ReadSome(vec![path("/usr", 1), path("/etc/hosts", u64::MAX)]);
        for plan in [
            SandboxPlan { base: BaseTree::Empty, mounts: Vec::new(), network: SandboxNetwork::LoopbackOnly }.into(),
            landlock(LandlockFiles::Unrestricted, SandboxNetwork::None),
            landlock(LandlockFiles::ReadEverything, SandboxNetwork::Host),
            landlock(some, SandboxNetwork::None),
        ] {
            let message = plan.encode();
            assert_eq!(EnforcementPlan::decode(&message), Ok(plan));
            for end in 0..message.len() {
                assert_eq!(EnforcementPlan::decode(&message[..end]), Err(MalformedMessage), "cut at {end}");
            }
        }
    }

    #[test]
    fn a_relative_path_is_refused() {
        let readable = ReadablePath { path: "usr".into(), source: FileId { device: 0, inode: 0, born: 0 } };
        let files = LandlockFiles::ReadSome(vec![readable]);
        let plan = EnforcementPlan::Landlock(LandlockPlan { files, network: SandboxNetwork::None });
        assert_eq!(EnforcementPlan::decode(&plan.encode()), Err(MalformedMessage));
    }
}
