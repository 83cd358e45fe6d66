//! Policies: the rules one by one, the limits, and a comparison with a slow and obvious model.

#![expect(clippy::unwrap_used, reason = "a failed unwrap in a helper function fails the test")]

mod limits;
mod model;
mod rules;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use sandbox::{
    Access, EntryTarget, FilePolicy, MINIMAL_ROOTS, MachineFacts, PolicyError, PolicyRequest, RequestedEntry,
    RequestedFiles, RequestedTarget, resolve_policy,
};

/// A machine as a test imagines it.
#[derive(Clone, Debug)]
struct Machine {
    tmpdir: Option<PathBuf>,
    slash_tmp_is_directory: bool,
    minimal_roots: Vec<PathBuf>,
    /// What the `.git` files with these paths name.
    git_files: HashMap<PathBuf, PathBuf>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            tmpdir: Some("/var/tmp/job".into()),
            slash_tmp_is_directory: true,
            minimal_roots: MINIMAL_ROOTS.iter().take(4).map(PathBuf::from).collect(),
            git_files: HashMap::new(),
        }
    }
}

/// What a policy allows, however it was spelled.
fn meaning(policy: &FilePolicy) -> Vec<(EntryTarget, Access)> {
    policy.entries().iter().map(|entry| (entry.target.clone(), entry.access)).collect()
}

impl Machine {
    fn resolve(&self, request: &PolicyRequest) -> Result<FilePolicy, PolicyError> {
        resolve_policy(
            request,
            &mut MachineFacts {
                tmpdir: self.tmpdir.clone(),
                slash_tmp_is_directory: self.slash_tmp_is_directory,
                minimal_roots: self.minimal_roots.clone(),
                git_directories_of: &mut |path| {
                    let named = self.git_files.get(path).zip(path.parent());
                    Ok(named.map(|(named, directory)| directory.join(named)).into_iter().collect())
                },
            },
        )
    }
}

fn path(path: impl AsRef<Path>, access: Access) -> RequestedEntry {
    RequestedEntry { target: RequestedTarget::Path(path.as_ref().to_path_buf()), access }
}

fn deny_glob(pattern: &str) -> RequestedEntry {
    RequestedEntry { target: RequestedTarget::Glob(pattern.to_owned()), access: Access::Deny }
}

fn project_roots(subpath: Option<&str>, access: Access) -> RequestedEntry {
    RequestedEntry { target: RequestedTarget::ProjectRoots { subpath: subpath.map(PathBuf::from) }, access }
}

fn special(target: RequestedTarget, access: Access) -> RequestedEntry {
    RequestedEntry { target, access }
}

/// A request in the directory `/ws`, which is also the only workspace root.
fn request(entries: Vec<RequestedEntry>) -> PolicyRequest {
    PolicyRequest {
        files: RequestedFiles::Restricted { entries, glob_scan_max_depth: None },
        cwd: Some("/ws".into()),
        workspace_roots: vec!["/ws".into()],
    }
}

fn resolve(entries: Vec<RequestedEntry>) -> FilePolicy {
    Machine::default().resolve(&request(entries)).unwrap()
}

#[track_caller]
fn check(policy: &FilePolicy, expected: &[(&str, Access)]) {
    for (path, access) in expected {
        assert_eq!(policy.access(Path::new(path)).access, *access, "{path} with {:#?}", policy.entries());
    }
}
