//! Policies of every shape: links, missing paths, files as roots, nesting, globs and restricted reads.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use sandbox::{Access, PlanError, RequestedEntry, SandboxNetwork, plan_sandbox};

use crate::support::{
    Outcome, TestSandbox, build_planned, entry, glob, is_root, minimal, policy, root, sandbox_for, workspace_sandbox,
};
use crate::yard::Yard;

fn sandbox(entries: Vec<RequestedEntry>) -> TestSandbox {
    sandbox_for(&policy(entries), SandboxNetwork::None)
}

fn plan_error(entries: Vec<RequestedEntry>) -> PlanError {
    plan_sandbox(&policy(entries), SandboxNetwork::None).unwrap_err()
}

/// Runs a script with the yard as working directory.
fn run(sandbox: &TestSandbox, yard: &Yard, script: &str) -> Outcome {
    sandbox.run_argv(&["/bin/sh", "-c", script], yard.base())
}

#[track_caller]
fn works(sandbox: &TestSandbox, yard: &Yard, script: &str) {
    let outcome = run(sandbox, yard, script);
    assert_eq!(outcome.code, 0, "{script}: {}", outcome.output);
}

#[track_caller]
fn fails(sandbox: &TestSandbox, yard: &Yard, script: &str) {
    let outcome = run(sandbox, yard, script);
    assert_ne!(outcome.code, 0, "{script}: {}", outcome.output);
    assert!(!outcome.output.contains("the-denied-contents"), "{script}: {}", outcome.output);
}

#[test]
fn a_writable_entry_that_is_a_link_is_protected_like_any_other() {
    let yard = Yard::new();
    fs::create_dir(yard.path("data")).unwrap();
    symlink("data", yard.path("alias")).unwrap();
    let alias = sandbox(vec![root(Access::Read), entry(yard.path("alias"), Access::Write)]);
    works(&alias, &yard, "echo x > alias/file && echo y > data/other");
    for script in [
        "mkdir alias/.git",
        "mkdir data/.git",
        "mkdir data/.git/hooks",
        "mkdir data/.codex/x",
        "echo x > outside/file",
    ] {
        fails(&alias, &yard, script);
    }
    drop(alias);
    assert!(!yard.path("data/.git").exists());
}

#[test]
fn a_directory_that_a_link_leaves_by_dots_cannot_be_replaced() {
    let yard = Yard::new();
    let ws = yard.path("ws");
    fs::create_dir_all(ws.join("sec")).unwrap();
    fs::create_dir_all(ws.join("y")).unwrap();
    fs::write(ws.join("sec/s"), "the-denied-contents").unwrap();
    symlink("y/../sec", ws.join("ld")).unwrap();
    let entries = || vec![root(Access::Read), entry(&ws, Access::Write), entry(ws.join("ld"), Access::Deny)];
    let first = sandbox(entries());
    fails(&first, &yard, "cat ws/sec/s");
    works(&first, &yard, "mkdir -p ws/o/y ws/o/sec && echo x > ws/y/file && rm ws/y/file");
    fails(&first, &yard, "rmdir ws/y");
    fails(&first, &yard, "mv ws/y ws/z");
    // What the next sandbox finds.
    works(&first, &yard, "rmdir ws/y && ln -s o/y ws/y || true");
    fails(&sandbox(entries()), &yard, "cat ws/sec/s");
    // The same for a path that is allowed: then the command would choose what it may read.
    symlink("ws/y/../../outside", yard.path("grant")).unwrap();
    let error = plan_error(vec![minimal(), entry(&ws, Access::Write), entry(yard.path("grant"), Access::Read)]);
    assert!(matches!(&error, PlanError::WritableDetour { directory, .. } if *directory == ws.join("y")), "{error}");
}

#[test]
fn a_link_that_a_command_can_replace_grants_nothing() {
    let yard = Yard::new();
    symlink(yard.path("outside/denied"), yard.path("ws/link")).unwrap();
    let ws = yard.path("ws");
    let denied = || entry(yard.path("outside/denied"), Access::Deny);
    for entries in [
        vec![root(Access::Read), entry(&ws, Access::Write), entry(ws.join("link"), Access::Write)],
        // Reading is less than the writing around the link, and more than the denial at its target.
        vec![minimal(), entry(&ws, Access::Write), entry(ws.join("link"), Access::Read)],
    ] {
        let error = plan_error(entries);
        assert!(matches!(&error, PlanError::WritableLink { link, .. } if *link == ws.join("link")), "{error}");
    }
    // The same, where the policy does not name the directory of the link by its real path.
    symlink("ws", yard.path("alias")).unwrap();
    let alias = yard.path("alias");
    let error =
        plan_error(vec![root(Access::Read), entry(&alias, Access::Write), entry(alias.join("link"), Access::Write)]);
    assert!(matches!(error, PlanError::WritableLink { .. }), "{error}");
    let sandbox =
        sandbox(vec![root(Access::Read), denied(), entry(&ws, Access::Write), entry(ws.join("link"), Access::Read)]);
    fails(&sandbox, &yard, "cat ws/link/secret");
    fails(&sandbox, &yard, "rm ws/link");
}

#[test]
fn a_protection_never_allows_to_read_what_is_denied() {
    let yard = Yard::new();
    fs::remove_dir_all(yard.path("ws/.git")).unwrap();
    symlink(yard.path("outside/denied"), yard.path("ws/.git")).unwrap();
    let sandbox = sandbox(vec![minimal(), entry(yard.path("ws"), Access::Write)]);
    works(&sandbox, &yard, "echo x > ws/new");
    fails(&sandbox, &yard, "cat ws/.git/secret");
    fails(&sandbox, &yard, "cat outside/denied/secret");
    fails(&sandbox, &yard, "rm ws/.git");
}

#[test]
fn a_writable_entry_can_be_a_file() {
    let yard = Yard::new();
    let file = sandbox(vec![root(Access::Read), entry(yard.path("ws/file"), Access::Write)]);
    works(&file, &yard, "echo new > ws/file");
    for script in ["echo x > ws/a/file", "rm ws/file", "mv ws/file ws/other", "echo > ws/new"] {
        fails(&file, &yard, script);
    }
    assert_eq!(fs::read_to_string(yard.path("ws/file")).unwrap(), "new\n");
    // In a writable directory it can be written too, but a directory with a `.git` cannot take its place.
    let both = sandbox(vec![
        root(Access::Read),
        entry(yard.path("ws"), Access::Write),
        entry(yard.path("ws/file"), Access::Write),
        entry(yard.path("ws/a/file/below"), Access::Deny),
    ]);
    works(&both, &yard, "echo newer > ws/file && echo newer > ws/a/file");
    fails(&both, &yard, "rm ws/file");
    fails(&both, &yard, "mv ws/a ws/moved");
    let alone = sandbox(vec![minimal(), entry(yard.path("outside/file"), Access::Read)]);
    works(&alone, &yard, &format!("cat {}", yard.path("outside/file").display()));
    fails(&alone, &yard, &format!("echo > {}", yard.path("outside/file").display()));
    fails(&alone, &yard, &format!("cat {}", yard.path("outside/dir/file").display()));
}

#[test]
fn missing_paths_are_protected_where_a_command_could_make_them() {
    let yard = Yard::new();
    let entries = || {
        vec![
            root(Access::Read),
            entry(yard.path("ws"), Access::Write),
            entry(yard.path("ws/one/x"), Access::Read),
            entry(yard.path("ws/one/y"), Access::Read),
            entry(yard.path("ws/two"), Access::Deny),
            entry(yard.path("outside/three/four"), Access::Deny),
            entry(yard.path("outside/five"), Access::Write),
            // Its own `.git` is protected once it exists.
            entry(yard.path("ws/build"), Access::Write),
        ]
    };
    let first = sandbox(entries());
    // Another sandbox finds the directories that the first one has made.
    let second = sandbox(entries());
    for sandbox in [&first, &second] {
        for script in ["mkdir -p ws/one/x", "echo > ws/one/y", "ls ws/two", "mkdir ws/two/x", "mkdir outside/five"] {
            fails(sandbox, &yard, script);
        }
        works(sandbox, &yard, "mkdir -p ws/build/out && echo x > ws/build/out/file && rm -r ws/build");
    }
    let is_directory = |name: &str| yard.path(name).is_dir();
    assert!(is_directory("ws/one") && is_directory("ws/two") && is_directory("ws/.codex"));
    drop(first);
    assert!(
        is_directory("ws/one") && is_directory("ws/two") && is_directory("ws/.codex"),
        "the second still needs them"
    );
    drop(second);
    assert!(
        !is_directory("ws/one")
            && !is_directory("ws/two")
            && !is_directory("ws/.codex")
            && !is_directory("ws/.agents")
    );
    assert!(!yard.path("outside/three").exists());
    fs::create_dir(yard.path("ws/build")).unwrap();
    fails(&sandbox(entries()), &yard, "mkdir -p ws/build/.git/hooks");
}

#[test]
fn a_writable_entry_that_this_user_cannot_write_needs_no_protection() {
    let yard = Yard::new();
    let sandbox = sandbox(vec![
        root(Access::Read),
        entry("/usr/lib", Access::Write),
        entry("/lost+found/nowhere/below", Access::Deny),
        entry(yard.path("ws"), Access::Write),
    ]);
    if !is_root() {
        fails(&sandbox, &yard, "mkdir /usr/lib/.git");
    }
    fails(&sandbox, &yard, "mkdir -p /usr/lib/.git/hooks");
    works(&sandbox, &yard, "echo x > ws/new");
}

#[test]
fn files_below_a_directory_without_permissions_stay_denied() {
    // Its owner can give the permissions back, so what is in it must stay denied.
    for mode in [0o000, 0o100, 0o400] {
        let yard = Yard::new();
        let entries = || {
            vec![
                root(Access::Read),
                entry(yard.path("ws"), Access::Write),
                entry(yard.path("ws/denied/secret"), Access::Deny),
                glob(format!("{}/ws/**/secret", yard.base().display())),
            ]
        };
        let first = sandbox(entries());
        works(&first, &yard, &format!("chmod {mode:o} ws/deep/er/denied ws/denied"));
        drop(first);
        let second = sandbox(entries());
        let outcome = run(
            &second,
            &yard,
            "chmod 755 ws/deep/er/denied ws/denied; cat ws/deep/er/denied/secret; cat ws/denied/secret",
        );
        assert!(!outcome.output.contains("the-denied-contents"), "{mode:o}: {}", outcome.output);
        drop(second);
        for directory in ["ws/deep/er/denied", "ws/denied"] {
            fs::set_permissions(yard.path(directory), fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

#[test]
fn a_file_that_takes_the_place_of_a_denied_one_leads_to_another_plan() {
    let yard = Yard::new();
    let planned = || plan_sandbox(&yard.policy(), SandboxNetwork::None).unwrap();
    let first = planned();
    let running = build_planned(planned());
    fs::write(yard.path("ws/new.txt"), "the-denied-contents").unwrap();
    fs::rename(yard.path("ws/new.txt"), yard.path("ws/denied.txt")).unwrap();
    let second = planned();
    assert_ne!(first.plan, second.plan, "the kernel has removed the mount together with the old file");
    fails(&build_planned(second), &yard, "cat ws/denied.txt");
    // Many file systems give the number of a removed file to the next one.
    let before = planned();
    fs::remove_file(yard.path("ws/denied.txt")).unwrap();
    fs::write(yard.path("ws/denied.txt"), "the-denied-contents").unwrap();
    assert_ne!(before.plan, planned().plan);
    drop(running);
}

#[test]
fn entries_can_be_nested() {
    let yard = Yard::new();
    fs::create_dir_all(yard.path("ws/n/1/2/3/4")).unwrap();
    for level in ["n", "n/1", "n/1/2", "n/1/2/3", "n/1/2/3/4"] {
        fs::write(yard.path("ws").join(level).join("file"), "contents").unwrap();
    }
    for base in [root(Access::Read), root(Access::Write), minimal()] {
        let nested = sandbox(vec![
            base,
            entry(yard.path("ws"), Access::Write),
            entry(yard.path("ws/n"), Access::Deny),
            entry(yard.path("ws/n/1"), Access::Write),
            entry(yard.path("ws/n/1/2"), Access::Deny),
            entry(yard.path("ws/n/1/2/3"), Access::Write),
            entry(yard.path("ws/n/1/2/3/4"), Access::Read),
        ]);
        works(
            &nested,
            &yard,
            "cat ws/n/1/file ws/n/1/2/3/file ws/n/1/2/3/4/file && echo > ws/n/1/x && echo > ws/n/1/2/3/x",
        );
        for script in [
            "ls ws/n",
            "cat ws/n/file",
            "echo > ws/n/new",
            "ls ws/n/1/2",
            "cat ws/n/1/2/file",
            "echo > ws/n/1/2/3/4/file",
            "mv ws/n/1 ws/moved",
            "mv ws/n ws/moved",
            "mv ws/n/1/2 ws/n/1/moved",
            "rmdir ws/n/1/2/3/4",
            // The directories in memory belong to the user, who could otherwise change their permissions.
            "chmod 777 ws/n; echo > ws/n/in-memory",
            "chmod 777 ws/n/1/2; echo > ws/n/1/2/in-memory",
        ] {
            fails(&nested, &yard, script);
        }
    }
}

#[test]
fn names_that_are_not_utf_8_work() {
    let yard = Yard::new();
    let name = OsStr::from_bytes(b"odd-\xff\xfe name\n");
    for directory in ["ws", "outside"] {
        fs::create_dir(yard.path(directory).join(name)).unwrap();
        fs::write(yard.path(directory).join(name).join("secret"), "the-denied-contents").unwrap();
    }
    let sandbox = sandbox(vec![
        root(Access::Read),
        entry(yard.path("outside").join(name), Access::Write),
        entry(yard.path("ws"), Access::Write),
        entry(yard.path("ws").join(name), Access::Deny),
    ]);
    works(&sandbox, &yard, "cd outside/odd-* && echo x > new");
    fails(&sandbox, &yard, "cat ws/odd-*/secret");
}

#[test]
fn globs_deny_up_to_8192_files() {
    let yard = Yard::new();
    let many = yard.path("ws/many");
    for folder in 0..8 {
        fs::create_dir_all(many.join(folder.to_string())).unwrap();
        for file in 0..1024 {
            fs::write(many.join(format!("{folder}/{file}.env")), "the-denied-contents").unwrap();
        }
    }
    fs::write(many.join("7/ordinary"), "ordinary").unwrap();
    let entries = || {
        vec![root(Access::Read), entry(yard.path("ws"), Access::Write), glob(format!("{}/**/*.env", many.display()))]
    };
    let sandbox = sandbox(entries());
    works(
        &sandbox,
        &yard,
        "cat ws/many/7/ordinary && echo new > ws/many/7/ordinary && [ $(ls ws/many/0 | wc -l) = 1024 ]",
    );
    let shown = run(&sandbox, &yard, "cat ws/many/*/*.env 2>/dev/null | wc -c");
    assert_eq!(shown.success().trim(), "0");
    fails(&sandbox, &yard, "mv ws/many/3 ws/many/moved");
    drop(sandbox);
    fs::write(many.join("one-more.env"), "").unwrap();
    assert!(matches!(plan_error(entries()), PlanError::TooManyMatches { limit: 8192 }));
}

#[test]
fn links_that_match_a_glob_do_not_deny_the_whole_machine() {
    let yard = Yard::new();
    for (name, target) in
        [("root.env", "/"), ("null.env", "/dev/null"), ("loop.env", "loop.env"), ("self.env", "/proc/self/environ")]
    {
        symlink(target, yard.path("ws").join(name)).unwrap();
    }
    symlink("file", yard.path("ws/file.env")).unwrap();
    let sandbox = sandbox(vec![
        root(Access::Read),
        entry(yard.path("ws"), Access::Write),
        glob(format!("{}/**/*.env", yard.base().display())),
    ]);
    works(&sandbox, &yard, "echo x > ws/a/file 2> /dev/null && ls / && cat outside/file");
    fails(&sandbox, &yard, "cat ws/file");
    fails(&sandbox, &yard, "rm ws/loop.env");
    let to_root = vec![root(Access::Read), entry(yard.path("ws/root.env"), Access::Deny)];
    assert!(matches!(plan_error(to_root), PlanError::LinkToRoot { .. }));
}

#[test]
fn with_restricted_reads_nothing_else_is_visible() {
    let yard = Yard::new();
    let sandbox = sandbox(vec![minimal(), entry(yard.path("ws"), Access::Write)]);
    works(&sandbox, &yard, "true");
    let script = format!("cd {}/ws && cat file && echo new > file && ls /usr/bin > /dev/null", yard.base().display());
    works(&sandbox, &yard, &script);
    for script in [
        "ls /".to_owned(),
        "ls /tmp".to_owned(),
        "cat /var/lib/dpkg/status".to_owned(),
        format!("ls {}", yard.base().display()),
        format!("cat {}", yard.path("outside/file").display()),
    ] {
        fails(&sandbox, &yard, &script);
    }
    // Writes anywhere else fail, instead of landing in memory.
    let script = "for d in / /tmp /home /root /var /var/tmp /run /proc /dev /dev/pts /usr /etc; do
        chmod 777 $d; echo x > $d/in-memory && echo written $d; mkdir $d/in-memory-too && echo made $d; done 2>/dev/null; true";
    assert_eq!(run(&sandbox, &yard, script).output, "");
}

#[test]
fn a_grant_below_a_denied_directory_is_reached_through_its_link() {
    let yard = Yard::new();
    symlink("dir", yard.path("outside/link")).unwrap();
    for base in [root(Access::Read), minimal()] {
        let sandbox = sandbox(vec![
            base,
            entry(yard.path("outside"), Access::Deny),
            entry(yard.path("outside/link"), Access::Read),
        ]);
        let base = yard.base().display();
        let script =
            format!("cat {base}/outside/link/file && cat {base}/outside/dir/file && ! cat {base}/outside/file");
        assert_eq!(sandbox.run(&script).code, 0);
    }
}

#[test]
fn devices_and_kernel_files_can_be_denied_and_denying_them_opens_nothing() {
    let yard = Yard::new();
    for base in [Access::Read, Access::Write] {
        let denied = sandbox(vec![
            root(base),
            entry("/dev/zero", Access::Deny),
            entry("/dev/mem", Access::Deny),
            entry("/dev/disk/by-id", Access::Deny),
            entry("/sys/kernel", Access::Deny),
        ]);
        let listed = run(&denied, &yard, "ls /dev").success();
        let expected = "fd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero\n";
        assert_eq!(listed, expected);
        fails(&denied, &yard, "head -c 1 /dev/zero");
        works(&denied, &yard, "head -c 1 /dev/urandom > /dev/null");
        fails(&denied, &yard, "ls /sys/kernel");
        let all = sandbox(vec![root(base), entry("/dev", Access::Deny)]);
        fails(&all, &yard, "ls /dev");
        works(&all, &yard, "ls /");
    }
    assert!(matches!(
        plan_error(vec![root(Access::Read), entry("/proc/sys", Access::Deny)]),
        PlanError::DeniedProc { .. }
    ));
    symlink("/proc/sys", yard.path("outside/link")).unwrap();
    let through_link = vec![root(Access::Read), entry(yard.path("outside/link"), Access::Deny)];
    assert!(matches!(plan_error(through_link), PlanError::DeniedProc { .. }));
}

#[test]
fn a_thousand_writable_entries_with_their_protections_work() {
    // Each placeholder needs a descriptor. A server raises its limit too.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum },
    )
    .unwrap();
    let yard = Yard::new();
    let roots: Vec<_> = (0..1000).map(|index| yard.path("ws").join(format!("root-{index}"))).collect();
    for path in &roots {
        fs::create_dir(path).unwrap();
    }
    let mut entries = vec![root(Access::Read)];
    entries.extend(roots.iter().map(|path| entry(path, Access::Write)));
    let sandbox = sandbox(entries);
    works(&sandbox, &yard, "for r in ws/root-*; do echo x > $r/file || exit 1; done");
    let script = "for r in ws/root-*; do mkdir $r/.git/hooks || mkdir $r/.codex/x || mv $r $r-moved || continue; exit 1; done 2>/dev/null";
    works(&sandbox, &yard, script);
    fails(&sandbox, &yard, "echo > ws/file");
    drop(sandbox);
    assert!(roots.iter().all(|path| fs::read_dir(path).unwrap().count() == 1), "only the new file is left");
}

#[test]
fn unusual_directories_are_no_obstacle() {
    let yard = Yard::new();
    let sticky = yard.path("ws/sticky");
    fs::create_dir(&sticky).unwrap();
    fs::set_permissions(&sticky, fs::Permissions::from_mode(0o1777)).unwrap();
    let sandbox = workspace_sandbox(&sticky);
    works(&sandbox, &yard, "echo x > ws/sticky/file");
    fails(&sandbox, &yard, "mkdir ws/sticky/.git/x");
    let current = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(current(&sticky), 0o1777);
}
