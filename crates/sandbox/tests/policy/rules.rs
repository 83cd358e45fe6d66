//! The rules of a policy, one test each.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sandbox::Access::{Deny, Read, Write};
use sandbox::{EntrySource, EntryTarget, PolicyError, PolicyRequest, RequestedFiles, RequestedTarget};

use super::{Machine, check, deny_glob, meaning, path, project_roots, request, resolve, special};

#[test]
fn the_entry_with_the_most_components_decides() {
    let policy = resolve(vec![path("/", Read), path("/a", Deny), path("/a/b", Write), path("/a/b/c", Read)]);
    check(
        &policy,
        &[
            ("/", Read),
            ("/x", Read),
            ("/a", Deny),
            ("/a/x", Deny),
            ("/ab", Read),
            ("/a/b", Write),
            ("/a/b/x/y", Write),
            ("/a/b/c/d", Read),
        ],
    );
    let decision = policy.access(Path::new("/a/b/c/d"));
    assert_eq!(decision.entry.unwrap().source, EntrySource::Request(3));
    assert_eq!(decision.matched, Path::new("/a/b/c"));
}

#[test]
fn without_an_entry_a_path_is_denied() {
    check(&resolve(vec![]), &[("/", Deny), ("/a", Deny)]);
    let policy = resolve(vec![path("/a", Read)]);
    check(&policy, &[("/", Deny), ("/b", Deny), ("relative", Deny), ("", Deny)]);
    assert!(policy.access(Path::new("/b")).entry.is_none());
}

#[test]
fn of_two_entries_for_a_path_deny_wins_over_write_and_write_over_read() {
    let policy = resolve(vec![path("/a", Read), path("/a/", Write), path("/b", Write), path("/./b", Deny)]);
    check(&policy, &[("/a", Write), ("/b", Deny)]);
    assert_eq!(policy.entries().len(), 2 + 3, "one entry for each path, and three protections of /a");
}

#[test]
fn paths_are_normalised_lexically() {
    let policy = resolve(vec![path("/a//b/../c/.", Read)]);
    check(&policy, &[("/a/c", Read), ("/a/./x/../c/d", Read), ("/a/b", Deny), ("/../a/c", Read), ("/a/c/..", Deny)]);
    let EntryTarget::Path(target) = &policy.entries()[0].target else { panic!() };
    assert_eq!(target.as_os_str(), "/a/c");
}

#[test]
fn names_that_are_not_utf_8_work() {
    let odd = Path::new(OsStr::from_bytes(b"/\xFF\xFE"));
    let policy = resolve(vec![path(odd, Write), deny_glob("/*/?.key")]);
    assert_eq!(policy.access(&odd.join("x")).access, Write);
    assert_eq!(policy.access(&odd.join(OsStr::from_bytes(b"\x80.key"))).access, Deny);
    assert_eq!(policy.access(Path::new("/\u{fffd}\u{fffd}")).access, Deny);
}

#[test]
fn special_entries_stand_for_directories_of_the_machine() {
    let entries = vec![
        special(RequestedTarget::Minimal, Read),
        special(RequestedTarget::Tmpdir, Write),
        special(RequestedTarget::SlashTmp, Write),
        special(RequestedTarget::Unknown, Write),
    ];
    let everything = [("/usr/bin/true", Read), ("/nix/store", Deny), ("/var/tmp/job/x", Write), ("/tmp/x", Write)];
    check(&resolve(entries.clone()), &everything);
    for tmpdir in [None, Some(PathBuf::new()), Some("relative".into())] {
        let machine =
            Machine { tmpdir, slash_tmp_is_directory: false, minimal_roots: Vec::new(), ..Machine::default() };
        assert!(machine.resolve(&request(entries.clone())).unwrap().entries().is_empty());
    }
}

#[test]
fn minimal_entries_never_make_system_directories_writable() {
    check(&resolve(vec![special(RequestedTarget::Minimal, Write)]), &[("/usr/bin", Read), ("/etc/passwd", Read)]);
    check(&resolve(vec![path("/", Read), special(RequestedTarget::Minimal, Deny)]), &[("/usr/bin", Deny)]);
}

#[test]
fn a_project_roots_entry_becomes_one_entry_for_each_workspace_root() {
    let mut request = request(vec![project_roots(None, Write), project_roots(Some("sub/./x"), Deny)]);
    request.workspace_roots = vec!["/one".into(), "/two/".into()];
    let policy = Machine::default().resolve(&request).unwrap();
    check(
        &policy,
        &[("/one/f", Write), ("/two/f", Write), ("/one/sub/x/f", Deny), ("/two/sub/x", Deny), ("/ws", Deny)],
    );
    request.workspace_roots.clear();
    assert!(Machine::default().resolve(&request).unwrap().entries().is_empty(), "cwd is no workspace root");
}

#[test]
fn a_subpath_cannot_leave_its_workspace_root() {
    for subpath in ["..", "a/../../b", "/etc", "/ws/x"] {
        let refused = Machine::default().resolve(&request(vec![project_roots(Some(subpath), Write)]));
        assert_eq!(refused.unwrap_err(), PolicyError::SubpathLeavesRoot(subpath.to_owned()));
    }
    check(&resolve(vec![project_roots(Some("a/../b"), Read)]), &[("/ws/b", Read), ("/ws/a", Deny)]);
    let refused = Machine::default().resolve(&request(vec![deny_glob("codex-project-roots://../*")]));
    assert_eq!(refused.unwrap_err(), PolicyError::SubpathLeavesRoot("../*".to_owned()));
}

#[test]
fn entries_that_depend_on_the_context_need_a_cwd() {
    for entry in [project_roots(None, Read), deny_glob("*.env"), deny_glob("codex-project-roots://*.env")] {
        let request = PolicyRequest { cwd: None, ..request(vec![entry]) };
        let error = Machine::default().resolve(&request).unwrap_err();
        assert_eq!(error.to_string(), "file system sandbox context with dynamic permissions requires cwd");
    }
    let request = PolicyRequest { cwd: None, ..request(vec![path("/", Read), deny_glob("/a/*.env")]) };
    check(&Machine::default().resolve(&request).unwrap(), &[("/a/x.env", Deny), ("/a/x", Read)]);
    let request = PolicyRequest { cwd: None, ..request_with("{/a,/b}/*.env") };
    check(&Machine::default().resolve(&request).unwrap(), &[("/a/x.env", Deny), ("/b/x.env", Deny), ("/a/x", Read)]);
}

fn request_with(glob: &str) -> PolicyRequest {
    request(vec![path("/", Read), deny_glob(glob)])
}

/// An empty pattern would deny the directory to which patterns are relative, with everything in it.
#[test]
fn a_pattern_with_an_empty_alternative_is_refused() {
    for pattern in
        ["", "{a,}", "{,*.env}", "codex-project-roots://", "codex-project-roots:///", "codex-project-roots://{x,}"]
    {
        let refused = Machine::default().resolve(&request_with(pattern)).unwrap_err().to_string();
        assert!(refused.contains("is empty"), "{pattern}: {refused}");
    }
    check(&Machine::default().resolve(&request_with("/{a,}b/*")).unwrap(), &[("/ab/x", Deny), ("/b/x", Deny)]);
}

#[test]
fn paths_that_are_not_absolute_or_have_a_nul_byte_are_refused() {
    let refused = |request: &PolicyRequest| Machine::default().resolve(request).unwrap_err().to_string();
    assert_eq!(refused(&request(vec![path("a/b", Read)])), "sandbox path `a/b` is not absolute");
    assert_eq!(refused(&request(vec![path("/a\0b", Read)])), r"sandbox path `/a\0b` contains a NUL byte");
    assert_eq!(refused(&request(vec![deny_glob("/*\0")])), r"sandbox path `/*\0` contains a NUL byte");
    assert_eq!(
        refused(&PolicyRequest { cwd: Some("a".into()), ..request(vec![]) }),
        "sandbox path `a` is not absolute"
    );
    assert_eq!(
        refused(&PolicyRequest { workspace_roots: vec!["b".into()], ..request(vec![]) }),
        "sandbox path `b` is not absolute"
    );
}

#[test]
fn a_glob_denies_its_matches_and_what_is_below_them() {
    let policy = resolve(vec![path("/", Read), path("/ws", Write), deny_glob("**/*.{env,pem}")]);
    check(
        &policy,
        &[
            ("/ws/a.env", Deny),
            ("/ws/d/a.pem", Deny),
            ("/ws/d.env/below", Deny),
            ("/ws/a.envx", Write),
            ("/other/a.env", Read),
        ],
    );
    let decision = policy.access(Path::new("/ws/d.env/below"));
    assert_eq!(decision.matched, Path::new("/ws/d.env"));
    assert_eq!(decision.entry.unwrap().source, EntrySource::Request(2));
}

#[test]
fn a_glob_wins_over_an_entry_for_the_same_path_and_loses_to_an_entry_below_its_match() {
    let policy = resolve(vec![path("/ws/a", Write), path("/ws/b/deep", Write), deny_glob("/ws/*")]);
    check(
        &policy,
        &[("/ws/a", Deny), ("/ws/a/x", Deny), ("/ws/b", Deny), ("/ws/b/deep/x", Write), ("/ws/a/.git", Deny)],
    );
    let policy = resolve(vec![path("/ws/b/deep", Write), deny_glob("/ws/**")]);
    check(&policy, &[("/ws/b/deep", Deny), ("/ws/b/deep/x", Deny)]);
}

#[test]
fn a_glob_below_each_workspace_root() {
    let mut request = request(vec![path("/", Read), deny_glob("codex-project-roots:///**/secret")]);
    request.workspace_roots = vec!["/one".into(), "/t*".into()];
    let policy = Machine::default().resolve(&request).unwrap();
    check(&policy, &[("/one/a/secret", Deny), ("/t*/secret/x", Deny), ("/two/secret", Read), ("/ws/secret", Read)]);
}

#[test]
fn globs_that_allow_or_cannot_be_understood_are_refused() {
    for access in [Read, Write] {
        let refused =
            Machine::default().resolve(&request(vec![special(RequestedTarget::Glob("/a/*".into()), access)]));
        assert_eq!(refused.unwrap_err(), PolicyError::GlobAllows("/a/*".to_owned()));
    }
    for pattern in ["", "/a/[z-a]", "/a/{b", "/*/../x"] {
        let refused = Machine::default().resolve(&request(vec![deny_glob(pattern)]));
        assert!(matches!(refused, Err(PolicyError::BadPattern { .. })), "{pattern:?}");
    }
}

#[test]
fn protected_names_in_writable_directories_are_read_only() {
    let policy = resolve(vec![path("/", Read), project_roots(None, Write), path("/ws/sub", Write)]);
    for directory in ["/ws", "/ws/sub"] {
        for name in [".git", ".agents", ".codex"] {
            check(&policy, &[(&format!("{directory}/{name}"), Read), (&format!("{directory}/{name}/x"), Read)]);
        }
    }
    check(&policy, &[("/ws/other/.git", Write), ("/ws/.gitignore", Write), ("/.git", Read)]);
    let decision = policy.access(Path::new("/ws/.git/config"));
    assert_eq!(decision.entry.unwrap().source, EntrySource::ProtectedName { writable: "/ws".into() });
}

#[test]
fn a_write_entry_at_or_below_a_protected_path_opens_it() {
    for opened in ["/ws/.git", "/ws/.git/hooks/x"] {
        let policy = resolve(vec![path("/ws", Write), path(opened, Write)]);
        check(
            &policy,
            &[("/ws/.git", Write), ("/ws/.git/config", Write), ("/ws/.codex", Read), ("/ws/.agents", Read)],
        );
    }
    let policy = resolve(vec![path("/ws", Write), path("/ws/.github", Write)]);
    check(&policy, &[("/ws/.git", Read), ("/ws/.github", Write)]);
    let policy = resolve(vec![path("/ws", Write), path("/ws/.git", Write), path("/ws/.git", Deny)]);
    check(&policy, &[("/ws/.git", Deny)]);
    let policy = resolve(vec![path("/ws", Write), path("/ws/.git/x", Write), path("/ws/.git/x", Deny)]);
    check(&policy, &[("/ws/.git", Read), ("/ws/.git/x", Deny)]);
}

#[test]
fn a_protection_never_allows_to_read_what_is_denied() {
    let policy = resolve(vec![path("/ws", Write), path("/ws/.git", Deny), deny_glob("/ws/.codex*")]);
    check(&policy, &[("/ws/.git/x", Deny), ("/ws/.codex", Deny), ("/ws/.agents", Read)]);
    let policy = resolve(vec![path("/ws/a", Write), path("/ws/a", Deny)]);
    check(&policy, &[("/ws/a/.git", Deny)]);
    let machine = Machine { git_files: [("/ws/.git".into(), "/secret".into())].into(), ..Machine::default() };
    let policy = machine.resolve(&request(vec![path("/ws", Write)])).unwrap();
    check(&policy, &[("/secret", Deny)]);
}

#[test]
fn the_directory_that_a_git_file_names_is_protected_where_it_is_writable() {
    let with_git_file = |named: &str, entries| {
        let machine = Machine { git_files: [("/ws/tree/.git".into(), named.into())].into(), ..Machine::default() };
        machine.resolve(&request(entries)).unwrap()
    };
    let entries = vec![path("/", Read), path("/ws/tree", Write), path("/ws/main", Write)];
    for named in ["/ws/main/.git/worktrees/tree", "../main/sub/../.git/worktrees/tree"] {
        let policy = with_git_file(named, entries.clone());
        check(&policy, &[("/ws/main/.git/worktrees/tree/HEAD", Read)]);
    }
    let policy = with_git_file("../main/data/git", entries.clone());
    check(&policy, &[("/ws/main/data/git/HEAD", Read), ("/ws/main/data", Write), ("/ws/tree/.git", Read)]);
    assert_eq!(
        policy.access(Path::new("/ws/main/data/git")).entry.unwrap().source,
        EntrySource::GitDirectory { git_file: "/ws/tree/.git".into() }
    );
    let policy =
        with_git_file("../main/data/git", [entries.clone(), vec![path("/ws/main/data/git", Write)]].concat());
    check(&policy, &[("/ws/main/data/git/HEAD", Write)]);
    check(&with_git_file("/elsewhere", entries.clone()), &[("/elsewhere", Read)]);
    check(&with_git_file("../..", entries), &[("/ws/tree/x", Write), ("/ws/main/x", Write)]);
}

#[test]
fn everything_may_be_written_only_if_the_root_may_and_no_entry_allows_less() {
    let writes_everything = |entries| resolve(entries).writes_everything();
    let root = |access| special(RequestedTarget::Root, access);
    assert!(!writes_everything(vec![]));
    assert!(!writes_everything(vec![root(Read)]));
    assert!(writes_everything(vec![root(Write)]));
    assert!(writes_everything(vec![path("/", Write), path("/a", Write)]));
    assert!(!writes_everything(vec![root(Write), path("/a", Read)]));
    assert!(writes_everything(vec![root(Write), path("/a", Read), path("/a", Write)]));
    assert!(!writes_everything(vec![root(Write), path("/a", Deny)]));
    assert!(!writes_everything(vec![root(Write), path("/a", Deny), path("/a", Write)]));
    assert!(!writes_everything(vec![root(Write), deny_glob("/a/*")]));
    assert!(!writes_everything(vec![root(Write), root(Deny)]));
    assert!(!writes_everything(vec![root(Read), path("/a", Write)]));
    assert!(!writes_everything(vec![path("/a", Write)]));
}

#[test]
fn a_policy_that_allows_writing_everywhere_has_no_protections() {
    let full = resolve(vec![path("/", Write), path("/ws", Write)]);
    check(&full, &[("/.git", Write), ("/ws/.git", Write)]);
    let narrowed = resolve(vec![path("/", Write), path("/ws", Write), path("/secret", Deny)]);
    check(&narrowed, &[("/.git", Read), ("/ws/.git", Read), ("/other/.git", Write)]);
    let unrestricted = Machine::default()
        .resolve(&PolicyRequest { files: RequestedFiles::Unrestricted, cwd: None, workspace_roots: Vec::new() })
        .unwrap();
    assert!(unrestricted.writes_everything());
    assert_eq!(unrestricted.access(Path::new("/x")).entry.unwrap().source, EntrySource::Unrestricted);
    assert_eq!(meaning(&unrestricted), meaning(&full), "both allow everything, so one sandbox serves both");
}

#[test]
fn policies_that_allow_the_same_are_the_same_however_they_are_spelled() {
    let one = resolve(vec![path("/", Read), project_roots(None, Write), path("/ws", Read), deny_glob("**/x")]);
    let other = resolve(vec![
        deny_glob("/ws/**/**/x"),
        path("/ws/", Write),
        special(RequestedTarget::Root, Read),
        special(RequestedTarget::Root, Read),
    ]);
    assert_eq!(meaning(&one), meaning(&other));
    assert_ne!(meaning(&one), meaning(&resolve(vec![path("/", Read), path("/ws", Write)])));
}
