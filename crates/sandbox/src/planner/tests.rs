//! The steps of plans, one by one. What they do to commands is tested with real sandboxes.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::policy::{MachineFacts, PolicyRequest, RequestedEntry, RequestedFiles, RequestedTarget, resolve_policy};

/// A directory with files, each given by its path. A path that ends with a slash is a directory.
fn tree(files: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    for file in files {
        let path = base.join(file);
        if file.ends_with('/') {
            fs::create_dir_all(path).unwrap();
        } else {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
    }
    (directory, base)
}

fn plan(base: &Path, root: Access, entries: &[(&str, Access)]) -> Result<PlannedSandbox, PlanError> {
    let mut requested = vec![RequestedEntry { target: RequestedTarget::Root, access: root }];
    for (path, access) in entries {
        let target = match path.strip_prefix("glob:") {
            Some(pattern) => RequestedTarget::Glob(format!("{}/{pattern}", base.display())),
            None => RequestedTarget::Path(base.join(path)),
        };
        requested.push(RequestedEntry { target, access: *access });
    }
    let request = PolicyRequest {
        files: RequestedFiles::Restricted { entries: requested, glob_scan_max_depth: None },
        cwd: None,
        workspace_roots: Vec::new(),
    };
    let mut facts = MachineFacts {
        tmpdir: None,
        slash_tmp_is_directory: true,
        minimal_roots: Vec::new(),
        git_directories_of: &mut |_| Ok(Vec::new()),
    };
    plan_sandbox(&resolve_policy(&request, &mut facts).unwrap(), SandboxNetwork::None)
}

/// The steps as texts, with paths relative to the base. Those above the base are left out.
fn steps(base: &Path, planned: &PlannedSandbox) -> Vec<String> {
    let relative = |path: &Path| path.strip_prefix(base).ok().map(|path| path.display().to_string());
    planned
        .plan
        .mounts
        .iter()
        .filter_map(|step| Some(format!("{:?} {}", step.kind, relative(&step.path)?)))
        .filter(|text| !text.ends_with(".agents") && !text.ends_with(".codex"))
        .collect()
}

#[track_caller]
fn check(base: &Path, root: Access, entries: &[(&str, Access)], expected: &[&str]) -> PlannedSandbox {
    let planned = plan(base, root, entries).unwrap();
    assert_eq!(steps(base, &planned), expected);
    planned
}

use Access::{Deny, Read, Write};

#[test]
fn an_outer_path_is_mounted_before_the_paths_below_it_and_every_mount_names_its_file() {
    let (_directory, base) = tree(&["ws/.git/", "ws/d/w/r/", "ws/file"]);
    let planned = check(
        &base,
        Read,
        &[("ws/d/w/r", Read), ("ws/d/w", Write), ("ws/d", Deny), ("ws", Write), ("ws/file", Deny)],
        &[
            "Writable ws",
            "ReadOnly ws/.git",
            "PassableDirectory ws/d",
            "MadeDirectory ws/d/w",
            "Writable ws/d/w",
            "ReadOnly ws/d/w/.git",
            "ReadOnly ws/d/w/r",
            "DeniedFile ws/file",
        ],
    );
    for step in planned.plan.mounts.iter().filter(|step| !matches!(step.kind, MountKind::MadeDirectory)) {
        assert_eq!(step.source, Some(FileFacts::of_path(&step.path).unwrap().id), "{step:?}");
    }
    let made: Vec<_> =
        planned.placeholders.paths().as_slice().iter().map(|path| path.strip_prefix(&base).unwrap()).collect();
    let expected = ["ws/.agents", "ws/.codex", "ws/d/w/.agents", "ws/d/w/.codex", "ws/d/w/.git"];
    assert_eq!(made, expected.map(Path::new));
}

#[test]
fn writable_directories_above_a_change_are_pinned() {
    let (_directory, base) = tree(&["ws/.git/", "ws/a/b/c/denied/", "ws/a/b/other/denied/"]);
    check(
        &base,
        Read,
        &[("ws", Write), ("ws/a/b/c/denied", Deny), ("ws/a/b/other/denied", Deny)],
        &[
            "Writable ws",
            "ReadOnly ws/.git",
            "Writable ws/a",
            "Writable ws/a/b",
            "Writable ws/a/b/c",
            "DeniedDirectory ws/a/b/c/denied",
            "Writable ws/a/b/other",
            "DeniedDirectory ws/a/b/other/denied",
        ],
    );
}

#[test]
fn an_entry_that_changes_nothing_is_left_out_but_pinned_where_something_below_it_changes() {
    let (_directory, base) = tree(&["ws/.git/", "ws/a/.git/", "ws/b/"]);
    check(&base, Read, &[("ws", Read), ("ws/b", Read)], &[]);
    check(
        &base,
        Read,
        &[("ws", Write), ("ws/a", Write)],
        &["Writable ws", "ReadOnly ws/.git", "Writable ws/a", "ReadOnly ws/a/.git"],
    );
}

#[test]
fn links_are_pinned_or_refused_or_made() {
    let (_directory, base) = tree(&["ws/.git/", "ws/real/", "data/x/"]);
    symlink("real", base.join("ws/link")).unwrap();
    symlink("data", base.join("alias")).unwrap();
    check(
        &base,
        Read,
        &[("ws", Write), ("ws/link", Deny)],
        &["Writable ws", "ReadOnly ws/.git", "DeniedDirectory ws/real", "PinnedLink ws/link"],
    );
    check(&base, Read, &[("alias", Write)], &["Writable data", "ReadOnly data/.git"]);
    symlink("../data/x", base.join("ws/out")).unwrap();
    let refused = plan(&base, Read, &[("ws", Write), ("ws/out", Write)]);
    assert!(matches!(refused, Err(PlanError::WritableLink { link, .. }) if link == base.join("ws/out")));
    // In a denied tree the link is made anew, after the directory that it is in.
    check(
        &base,
        Read,
        &[("", Deny), ("alias/x", Read)],
        &[
            "PassableDirectory ",
            "MadeLink(\"data\") alias",
            "MadeDirectory data",
            "MadeDirectory data/x",
            "ReadOnly data/x",
        ],
    );
}

#[test]
fn a_replaced_file_changes_the_plan_and_a_changed_one_does_not() {
    let (_directory, base) = tree(&["secret"]);
    let planned = || plan(&base, Read, &[("secret", Deny)]).unwrap().plan;
    let before = planned();
    fs::write(base.join("secret"), "other contents").unwrap();
    assert_eq!(planned(), before);
    fs::write(base.join("new"), "").unwrap();
    fs::rename(base.join("new"), base.join("secret")).unwrap();
    assert_ne!(planned(), before);
}

/// What this thread has used of the processor so far, in nanoseconds. Other processes have no influence on it.
fn processor_time() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn planning_many_files_takes_linear_time() {
    let time = |count: usize| {
        let (_directory, base) = tree(&["ws/.git/", "ws/.agents/", "ws/.codex/", "ws/many/"]);
        for number in 0..count {
            fs::write(base.join(format!("ws/many/{number}.env")), "").unwrap();
        }
        let start = processor_time();
        let planned = plan(&base, Read, &[("ws", Write), ("glob:ws/**/*.env", Deny)]).unwrap();
        assert_eq!(planned.plan.mounts.len(), 5 + count);
        processor_time() - start
    };
    let (some, many) = (time(1000).min(time(1000)), time(8000).min(time(8000)));
    // Eight times as many; quadratic cost would be a factor of 64.
    assert!(many < some * 30, "{some} and {many} nanoseconds");
}

#[test]
fn globs_deny_files_at_every_depth_and_need_a_directory() {
    let (_directory, base) = tree(&["ws/1.env", "ws/a/2.env", "ws/a/b/3.env", "ws/denied.env/4.env"]);
    check(
        &base,
        Read,
        &[("glob:ws/**/*.env", Deny)],
        &["DeniedFile ws/1.env", "DeniedFile ws/a/2.env", "DeniedFile ws/a/b/3.env", "DeniedDirectory ws/denied.env"],
    );
    let root_glob = plan(Path::new(""), Read, &[("glob:*/x", Deny)]);
    assert!(matches!(root_glob, Err(PlanError::GlobWithoutDirectory { .. })));
}

#[test]
fn a_glob_also_denies_below_what_an_entry_allows_below_a_match() {
    let (_directory, base) =
        tree(&["ws/secret1/pub/secret2", "ws/secret1/pub/a", "ws/secret1/secret3/b", "ws/secret4/secret5"]);
    check(
        &base,
        Read,
        &[("glob:ws/**/secret*", Deny), ("ws/secret1/pub", Read)],
        &[
            "PassableDirectory ws/secret1",
            "MadeDirectory ws/secret1/pub",
            "ReadOnly ws/secret1/pub",
            "DeniedFile ws/secret1/pub/secret2",
            "DeniedDirectory ws/secret4",
        ],
    );
}

fn is_not_found(error: &PlaceholderError) -> bool {
    matches!(error, PlaceholderError::Host(error) if error.kind() == io::ErrorKind::NotFound)
}

#[test]
fn no_placeholder_is_made_through_a_link() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("outside")).unwrap();
    symlink("outside", directory.path().join("link")).unwrap();
    let mut placeholders = Placeholders::default();
    let path = directory.path().join("link/.git");
    let error = placeholders.add(&path, None, &mut LastParent::default()).unwrap_err();
    // The plan is made again, and then it sees the link.
    assert!(is_not_found(&error), "{error:?}");
    assert!(!path.exists());
}

#[test]
fn a_directory_that_somebody_has_made_meanwhile_is_not_taken_for_a_placeholder() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(".git");
    fs::create_dir(&path).unwrap();
    let mut placeholders = Placeholders::default();
    let error = placeholders.add(&path, None, &mut LastParent::default()).unwrap_err();
    assert!(is_not_found(&error), "{error:?}");
    drop(placeholders);
    assert!(path.exists());
}

#[test]
fn an_owner_has_only_its_share_of_placeholders() {
    let directory = tempfile::tempdir().unwrap();
    let (greedy, other) = (PlaceholderOwner::default(), PlaceholderOwner::default());
    let mut shares: Vec<_> = std::iter::from_fn(|| greedy.take_share().ok()).collect();
    assert!((1..=MAX_PLACEHOLDERS_OF_OWNER).contains(&shares.len()), "{}", shares.len());
    let add = |owner: &PlaceholderOwner, name: &str| {
        let mut placeholders = Placeholders::new(Vec::new(), owner.clone());
        placeholders.add(&directory.path().join(name), None, &mut LastParent::default()).map(|_| placeholders)
    };
    assert!(matches!(add(&greedy, "a"), Err(PlaceholderError::OwnerHasTooMany)));
    let made = add(&other, "b").unwrap();
    // What another owner has made can be shared.
    let seen = FileFacts::of_path(&directory.path().join("b")).unwrap().id;
    let mut shared = Placeholders::new(Vec::new(), greedy.clone());
    shared.add(&directory.path().join("b"), Some(seen), &mut LastParent::default()).unwrap();
    drop((made, shared, shares.pop()));
    drop(add(&greedy, "c").unwrap());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn something_else_that_appears_at_the_path_of_a_placeholder_leads_to_another_plan() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(".git");
    for make in [|path: &Path| fs::write(path, "").unwrap(), |path: &Path| symlink("x", path).unwrap()] {
        make(&path);
        let error = Placeholders::default().add(&path, None, &mut LastParent::default()).unwrap_err();
        assert!(is_not_found(&error), "{error:?}");
        fs::remove_file(&path).unwrap();
    }
}
