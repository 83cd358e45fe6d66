//! Makes the plan of a sandbox without namespaces, if Landlock can express the policy exactly. Landlock lists what is
//! allowed, so it can neither deny something below a path that is allowed, nor keep a name from being made in a
//! directory that may be written.

use std::path::{Path, PathBuf};

use super::host_path::{HostPaths, PathEnd};
use crate::landlock::{MissingLandlock, landlock_version};
use crate::landlock_plan::{LandlockFiles, LandlockPlan, ReadablePath};
use crate::plan::SandboxNetwork;
use crate::policy::{Access, EntryTarget, FilePolicy};

/// Why Landlock cannot enforce a policy. The text follows words such as "Landlock is no substitute:".
#[derive(Debug, thiserror::Error)]
pub enum LandlockUnfit {
    /// Landlock cannot protect names in a writable directory.
    #[error(
        "the policy allows writing to {}, and Landlock can neither protect names such as .git there nor keep paths in it read-only",
        path.display()
    )]
    Writable {
        /// The path of the entry.
        path: PathBuf,
    },
    /// Landlock can only allow.
    #[error("the policy denies {target}, and Landlock can only allow")]
    Denies {
        /// The path or the pattern of the entry.
        target: String,
    },
    /// The policy asks for a network that reaches only the proxy of the server. Without a network namespace, every program of the host
    /// could reach that proxy.
    #[error("the policy asks for a managed network, which needs a network namespace")]
    ManagedNetwork,
    /// User 0 may change settings of the whole machine by writing files.
    #[error(
        "the policy allows writing to all files, and user 0 could change settings of the whole machine in /proc and /sys; run the server as another user"
    )]
    UnrestrictedRoot,
    /// The machine has no Landlock, or an old one.
    #[error(transparent)]
    Missing(#[from] MissingLandlock),
    /// A file of the host could not be examined.
    #[error("{} cannot be prepared for Landlock: {source}", path.display())]
    Host {
        /// The path that was examined.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// Makes the plan of a sandbox without namespaces that allows reading and writing exactly what `policy` allows. Names, metadata (`stat`) and
/// link targets of other files stay visible, because Landlock does not control them. Blocks while it examines files.
pub fn plan_landlock(policy: &FilePolicy, network: SandboxNetwork) -> Result<LandlockPlan, LandlockUnfit> {
    if network == SandboxNetwork::LoopbackOnly {
        return Err(LandlockUnfit::ManagedNetwork);
    }
    let files = landlock_files(policy, rustix::process::geteuid().is_root())?;
    landlock_version()?;
    Ok(LandlockPlan { files, network })
}

fn landlock_files(policy: &FilePolicy, is_root: bool) -> Result<LandlockFiles, LandlockUnfit> {
    if policy.writes_everything() {
        return if is_root { Err(LandlockUnfit::UnrestrictedRoot) } else { Ok(LandlockFiles::Unrestricted) };
    }
    let mut readable = Vec::new();
    for entry in policy.entries() {
        match (&entry.target, entry.access) {
            (EntryTarget::Path(path), Access::Read) => readable.push(path.as_path()),
            (EntryTarget::Path(path), Access::Write) => return Err(LandlockUnfit::Writable { path: path.clone() }),
            (EntryTarget::Path(path), Access::Deny) => {
                return Err(LandlockUnfit::Denies { target: path.display().to_string() });
            }
            (EntryTarget::Glob(glob), _) => return Err(LandlockUnfit::Denies { target: glob.to_string() }),
        }
    }
    if readable.contains(&Path::new("/")) {
        return Ok(LandlockFiles::ReadEverything);
    }
    let mut found = Vec::new();
    for path in readable {
        found.extend(find(path).map_err(|source| LandlockUnfit::Host { path: path.to_owned(), source })?);
    }
    Ok(LandlockFiles::ReadSome(found))
}

/// The file at a path. None if there is none, and for paths in `/proc`: each process sees another `/proc/self`, and this
/// process would find its own.
fn find(path: &Path) -> std::io::Result<Option<ReadablePath>> {
    if path.starts_with("/proc") && path != Path::new("/proc") {
        return Ok(None);
    }
    let found = HostPaths::default().follow(path)?;
    Ok(match found.end {
        PathEnd::Existing(facts) if !found.real_path.starts_with("/proc/") => {
            Some(ReadablePath { path: found.real_path, source: facts.id })
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{
        MachineFacts, PolicyRequest, RequestedEntry, RequestedFiles, RequestedTarget, resolve_policy,
    };

    fn files(entries: &[(&str, Access)]) -> Result<LandlockFiles, LandlockUnfit> {
        let entries = entries.iter().map(|(path, access)| {
            let is_glob = path.contains('*');
            let target =
                if is_glob { RequestedTarget::Glob((*path).to_owned()) } else { RequestedTarget::Path(path.into()) };
            RequestedEntry { target, access: *access }
        });
        let files = RequestedFiles::Restricted { entries: entries.collect(), glob_scan_max_depth: None };
        let request = PolicyRequest { files, cwd: Some("/".into()), workspace_roots: Vec::new() };
        let mut facts = MachineFacts {
            tmpdir: None,
            slash_tmp_is_directory: false,
            minimal_roots: Vec::new(),
            git_directories_of: &mut |_| Ok(Vec::new()),
        };
        landlock_files(&resolve_policy(&request, &mut facts).unwrap(), false)
    }

    #[test]
    fn policies_that_only_allow_reading_can_be_expressed() {
        assert_eq!(files(&[("/", Access::Read)]).unwrap(), LandlockFiles::ReadEverything);
        assert_eq!(files(&[("/", Access::Read), ("/usr", Access::Read)]).unwrap(), LandlockFiles::ReadEverything);
        assert_eq!(files(&[("/", Access::Write)]).unwrap(), LandlockFiles::Unrestricted);
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("real", &link).unwrap();
        let missing = folder.path().join("missing");
        let paths = [(link.to_str().unwrap(), Access::Read), (missing.to_str().unwrap(), Access::Read)];
        let LandlockFiles::ReadSome(found) = files(&paths).unwrap() else { panic!("not a list") };
        assert_eq!(found.iter().map(|readable| &readable.path).collect::<Vec<_>>(), [&real]);
    }

    #[test]
    fn the_proc_directory_of_this_process_is_never_allowed() {
        let found = files(&[("/proc/self", Access::Read), ("/proc/1/environ", Access::Read)]).unwrap();
        assert_eq!(found, LandlockFiles::ReadSome(Vec::new()));
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/proc/self/fd", &link).unwrap();
        let found = files(&[(link.to_str().unwrap(), Access::Read)]).unwrap();
        assert_eq!(found, LandlockFiles::ReadSome(Vec::new()));
    }

    #[test]
    fn other_policies_are_refused_with_the_entry_that_is_in_the_way() {
        for (entries, words) in [
            (&[("/", Access::Read), ("/ws", Access::Write)][..], "allows writing to /ws,"),
            (&[("/", Access::Write), ("/ws/.git", Access::Read)], "allows writing to /,"),
            (&[("/", Access::Read), ("/etc/ssl", Access::Deny)], "denies /etc/ssl,"),
            (&[("/", Access::Read), ("/srv/**/*.env", Access::Deny)], "denies /srv/**/*.env,"),
            (&[("/", Access::Write), ("/x", Access::Deny)], "allows writing to /,"),
        ] {
            let text = files(entries).unwrap_err().to_string();
            assert!(text.contains(words), "{text}");
        }
        let all = resolve_policy(
            &PolicyRequest { files: RequestedFiles::Unrestricted, cwd: None, workspace_roots: Vec::new() },
            &mut MachineFacts {
                tmpdir: None,
                slash_tmp_is_directory: false,
                minimal_roots: Vec::new(),
                git_directories_of: &mut |_| Ok(Vec::new()),
            },
        )
        .unwrap();
        assert!(matches!(landlock_files(&all, true), Err(LandlockUnfit::UnrestrictedRoot)));
        let managed = plan_landlock(&all, SandboxNetwork::LoopbackOnly);
        assert!(matches!(managed, Err(LandlockUnfit::ManagedNetwork)));
    }
}
