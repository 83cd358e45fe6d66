//! Chooses the *base*: the cgroup in which the server makes its own ones. That is the cgroup of the server, so that its limits hold
//! for all trees together. It is the parent only if somebody has delegated the parent to the server (see [`choose`]). The base
//! must pass its controllers on to the cgroups below it, and the kernel allows that only if no process is in the base
//! itself. So a server that is alone in its cgroup moves into a cgroup below it, if its process is dedicated to it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, Mode, OFlags};

use super::create_cgroup;
use super::leftovers::{lock, remove_of_ended_servers};
use super::location::CgroupLocation;
use crate::children::children;
use crate::descriptors::above_stdio;
use crate::guard::GUARD_NAME;

/// The cgroup of the server itself, if the server had to leave the base.
const SELF_DIRECTORY: &str = "exec-server-self";

/// How often a server looks whether a guard has left its cgroup, and the pause in between. A guard that passes through needs less than a
/// millisecond on an idle machine.
const ALONE_TRIES: usize = 20;
const ALONE_PAUSE: Duration = Duration::from_millis(1);

/// The extended attributes by which systemd marks a cgroup that it has delegated to a service. The second one can be read only by root.
const DELEGATION_MARKS: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// The files with the limits of a cgroup. Without a limit, the first word in them is `max`, or they are empty.
const LIMIT_FILES: [&str; 7] =
    ["memory.max", "memory.high", "memory.swap.max", "pids.max", "cpu.max", "io.max", "cpuset.cpus"];

/// What the kernel can limit in the cgroups below a base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Controllers {
    pub(crate) memory: bool,
    pub(crate) pids: bool,
}

impl Controllers {
    /// The controllers in a file such as `cgroup.controllers`.
    pub(super) fn read(file: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(file)?;
        let has = |name| text.split_ascii_whitespace().any(|word| word == name);
        Ok(Self { memory: has("memory"), pids: has("pids") })
    }

    fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// A cgroup in which this server may make its own cgroup.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) directory: PathBuf,
    /// The directory, locked, so that no server that ends takes the controllers away before this server has made its cgroup. None
    /// if it could not be locked in time, because any process may lock it.
    _lock: Option<OwnedFd>,
}

/// Finds a base and makes it pass its controllers on. The limits of the server's own cgroup do not hold in the cgroups beside it. So
/// the parent is used only if the own cgroup cannot be the base and has no limits, and if systemd has delegated exactly the parent:
/// a service with `DelegateSubgroup=` runs in a cgroup below the delegated one. If neither cgroup can be used, the error is about the
/// server's own cgroup. A server that finds itself in [`SELF_DIRECTORY`] uses the parent too: it, or the server that started it, has
/// made this cgroup to leave the parent.
pub(super) fn choose() -> Result<Base, String> {
    choose_at(&CgroupLocation::find()?)
}

fn choose_at(location: &CgroupLocation) -> Result<Base, String> {
    let own = &location.own;
    if let Some(left) = left_base(location).filter(|_| limit_of(own).is_none()) {
        return prepare(left, MayMove::Never);
    }
    let own_problem = match prepare(own, MayMove::IfAlone) {
        Ok(base) => return Ok(base),
        Err(problem) => problem,
    };
    let Some(parent) = location.parent().filter(|parent| is_marked(parent)) else { return Err(own_problem) };
    if let Some(file) = limit_of(own) {
        return Err(format!(
            "{own_problem}; the delegated cgroup {} cannot be used instead, because the limit in {} would not hold for \
             processes there; limit the delegated cgroup instead",
            parent.display(),
            file.display()
        ));
    }
    prepare(parent, MayMove::Never).map_err(|_| own_problem)
}

/// The base that this process, or the server that started it, has left for [`SELF_DIRECTORY`]. None if the process is in another cgroup.
fn left_base(location: &CgroupLocation) -> Option<&Path> {
    location.parent().filter(|_| location.own.ends_with(SELF_DIRECTORY))
}

/// The first of the [`LIMIT_FILES`] that has a limit.
fn limit_of(cgroup: &Path) -> Option<PathBuf> {
    LIMIT_FILES.iter().map(|file| cgroup.join(file)).find(|file| {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.split_ascii_whitespace().next().is_some_and(|word| word != "max")
    })
}

/// Whether the server may leave a cgroup so that it can pass its controllers on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MayMove {
    Never,
    /// If no other process is in the cgroup.
    IfAlone,
}

fn prepare(base: &Path, may_move: MayMove) -> Result<Base, String> {
    let shown = base.display();
    let available = Controllers::read(&base.join("cgroup.controllers"))
        .map_err(|error| format!("cannot read the controllers of the cgroup {shown}: {error}"))?;
    if let Some(kind @ ("threaded" | "domain invalid")) = type_of(base).as_deref() {
        return Err(format!(
            "the cgroup {shown} is part of a threaded cgroup (its cgroup.type is `{kind}`), and the kernel limits no \
             processes in it; start the server in a cgroup of the type `domain`"
        ));
    }
    if available.is_empty() {
        return Err(missing_controllers(base, available));
    }
    for file in ["cgroup.procs", "cgroup.subtree_control"] {
        if let Err(error) = rustix::fs::access(base.join(file), Access::WRITE_OK) {
            let error = io::Error::from(error);
            return Err(format!(
                "the server may not write to the cgroup {shown} ({error}); start it as a systemd service with \
                 Delegate=yes, or mount /sys/fs/cgroup writable in its container"
            ));
        }
    }
    if !is_delegated(base) {
        return Err(format!(
            "the cgroup {shown} belongs to systemd, which may undo changes in it; start the server as a service with \
             Delegate=yes"
        ));
    }
    let lock = lock_base(base);
    pass_on(base, available, may_move)?;
    Ok(Base { directory: base.to_owned(), _lock: lock })
}

fn lock_base(base: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(base, flags, Mode::empty()).map_err(io::Error::from).and_then(above_stdio).ok()?;
    lock(&opened).ok()?;
    Some(opened)
}

/// A sentence that says which controllers are missing in a cgroup, and what to do.
pub(super) fn missing_controllers(base: &Path, available: Controllers) -> String {
    let missing = match (available.memory, available.pids) {
        (false, true) => "the memory controller",
        (true, false) => "the pids controller",
        _ => "the memory controller and the pids controller",
    };
    let disabled = fs::read_to_string("/proc/cgroups").map(|text| disabled_at_boot(&text)).unwrap_or_default();
    let advice = if (disabled.memory && !available.memory) || (disabled.pids && !available.pids) {
        "the kernel was started without it; boot without cgroup_disable= for it, or with cgroup_enable=memory where memory is \
         disabled by default"
    } else {
        "if version 1 of cgroups uses it, boot with systemd.unified_cgroup_hierarchy=1; if systemd starts the server, set \
         Delegate=yes; otherwise write `+memory +pids` to cgroup.subtree_control of the cgroup above"
    };
    format!("the cgroup {} lacks {missing}; {advice}", base.display())
}

/// The controllers that are switched off according to the text of `/proc/cgroups`: the last number in their line is 0.
fn disabled_at_boot(text: &str) -> Controllers {
    let is_disabled = |name| {
        let mut lines = text.lines().map(str::split_ascii_whitespace);
        lines.any(|mut words| words.next() == Some(name) && words.last() == Some("0"))
    };
    Controllers { memory: is_disabled("memory"), pids: is_disabled("pids") }
}

/// What `cgroup.type` says. None for the root of the hierarchy, which has no such file.
fn type_of(cgroup: &Path) -> Option<String> {
    fs::read_to_string(cgroup.join("cgroup.type")).ok().map(|text| text.trim().to_owned())
}

/// Makes the controllers available in the cgroups below `base`.
fn pass_on(base: &Path, controllers: Controllers, may_move: MayMove) -> Result<(), String> {
    // The kernel lets a cgroup with processes pass on the pids controller alone. But the cgroup is threaded then, and no process
    // may enter the cgroups below it.
    let has_moved = make_room(base, may_move).map_err(|error| cannot_pass_on(base, &error))?;
    // Making room can have switched a controller off.
    let enabled = Controllers::read(&base.join("cgroup.subtree_control")).unwrap_or_default();
    let wanted: Vec<&str> = [
        (controllers.memory && !enabled.memory).then_some("+memory"),
        (controllers.pids && !enabled.pids).then_some("+pids"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    fs::write(base.join("cgroup.subtree_control"), wanted.join(" ")).map_err(|error| {
        if has_moved {
            move_back(base);
        }
        cannot_pass_on(base, &error)
    })
}

fn cannot_pass_on(base: &Path, error: &io::Error) -> String {
    let shown = base.display();
    if is_busy(error) {
        format!(
            "there are processes in the cgroup {shown}, so it cannot pass its controllers on; start the server alone in \
                 a cgroup, for example as a systemd service of its own with Delegate=yes, or with DelegateSubgroup= if \
                 another program embeds it"
        )
    } else {
        format!("cannot pass the controllers of the cgroup {shown} on: {error}")
    }
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBUSY)
}

/// Makes sure that no process is in `base`: moves this process into a cgroup below it, if this process is alone in `base` and does
/// nothing but run the server. Says whether it has moved.
fn make_room(base: &Path, may_move: MayMove) -> io::Result<bool> {
    let Some(kind) = type_of(base) else {
        // The root of the hierarchy passes its controllers on while it has processes.
        return Ok(false);
    };
    let processes = fs::read_to_string(base.join("cgroup.procs"))?;
    if processes.trim().is_empty() {
        return Ok(false);
    }
    // A process that is dedicated to the server (see `HostProcess`) adopts the orphans of its children.
    let is_dedicated = children().adopts_orphans();
    if may_move == MayMove::Never || !is_dedicated || !is_soon_alone(base)? {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    if kind == "domain threaded" {
        stop_threading(base)?;
    }
    let directory = base.join(SELF_DIRECTORY);
    match create_cgroup(&directory) {
        // An earlier server has left it, or another server is in it.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        other => other?,
    }
    fs::write(directory.join("cgroup.procs"), "0")?;
    Ok(true)
}

/// Whether this process is alone in a cgroup. Waits for a moment if the other processes are guards, because the guard of an earlier server
/// passes through the cgroup when it ends, see [`give_back`].
fn is_soon_alone(cgroup: &Path) -> io::Result<bool> {
    let own = rustix::process::getpid().as_raw_nonzero().get().to_string();
    let is_guard = |pid: &str| {
        fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_ascii_end() == GUARD_NAME.to_bytes())
    };
    for _ in 0..ALONE_TRIES {
        let processes = fs::read_to_string(cgroup.join("cgroup.procs"))?;
        let mut others = processes.lines().filter(|pid| *pid != own).peekable();
        if others.peek().is_none() {
            return Ok(true);
        }
        if !others.all(is_guard) {
            return Ok(false);
        }
        std::thread::sleep(ALONE_PAUSE);
    }
    Ok(false)
}

/// Switches the pids controller off below a cgroup that has processes and passes this controller on. No process may enter the cgroups
/// below such a cgroup. An earlier server that was killed together with its guard can have left it.
fn stop_threading(base: &Path) -> io::Result<()> {
    remove_of_ended_servers(base);
    if has_foreign_cgroups(base) {
        return Err(io::Error::other(
            "its cgroup.type is `domain threaded`, because there are both processes in it and cgroups with controllers below \
             it; remove the cgroups below it, or start the server in another cgroup",
        ));
    }
    fs::write(base.join("cgroup.subtree_control"), "-pids")
}

/// Whether there are cgroups in `base` other than [`SELF_DIRECTORY`]. True if that cannot be found out.
fn has_foreign_cgroups(base: &Path) -> bool {
    fs::read_dir(base).map_or(true, |mut entries| {
        entries.any(|entry| {
            entry.map_or(true, |entry| {
                entry.file_name() != SELF_DIRECTORY && entry.file_type().is_ok_and(|kind| kind.is_dir())
            })
        })
    })
}

/// Undoes what [`choose`] has changed in the base that this process has left, if no other server uses the base: otherwise no program
/// could start a server in that cgroup again, because the kernel refuses processes in a cgroup that passes its controllers on. A server
/// that ends does this, and its guard after it, so that whichever is the last in [`SELF_DIRECTORY`] removes it.
pub(crate) fn give_back() {
    let Ok(location) = CgroupLocation::find() else { return };
    let Some(base) = left_base(&location) else { return };
    // Without the lock, the controllers could be taken from a server that is just starting.
    let Some(_lock) = lock_base(base) else { return };
    if has_foreign_cgroups(base) {
        return;
    }
    let file = base.join("cgroup.subtree_control");
    let enabled = Controllers::read(&file).unwrap_or_default();
    let words = [enabled.memory.then_some("-memory"), enabled.pids.then_some("-pids")];
    let words: Vec<&str> = words.into_iter().flatten().collect();
    if words.is_empty() || fs::write(&file, words.join(" ")).is_ok() {
        move_back(base);
    }
}

/// Returns to `base` after [`make_room`].
fn move_back(base: &Path) {
    let _stays_in_the_cgroup_below = fs::write(base.join("cgroup.procs"), "0");
    let _another_process_may_be_in_it = fs::remove_dir(base.join(SELF_DIRECTORY));
}

/// Whether changes of this process in a cgroup last. Ordinary users have the permissions only in cgroups that were delegated to
/// them. Root may write everywhere, but systemd undoes changes in cgroups that it has not delegated.
fn is_delegated(base: &Path) -> bool {
    !rustix::process::geteuid().is_root()
        || !Path::new("/run/systemd/system").exists()
        || base.ancestors().any(is_marked)
}

/// Whether systemd has delegated exactly this cgroup.
fn is_marked(directory: &Path) -> bool {
    DELEGATION_MARKS.iter().any(|mark| {
        let mut value = [0; 8];
        let length = rustix::fs::getxattr(directory, *mark, &mut value);
        length.is_ok_and(|length| value.get(..length) == Some(b"1".as_slice()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imitated(controllers: &str, enabled: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let files = [("cgroup.controllers", controllers), ("cgroup.subtree_control", enabled), ("cgroup.procs", "")];
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn pass_on_in(folder: &Path) -> String {
        let available = Controllers::read(&folder.join("cgroup.controllers")).unwrap();
        pass_on(folder, available, MayMove::Never).unwrap();
        fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap()
    }

    #[test]
    fn only_controllers_that_are_not_passed_on_yet_are_enabled() {
        assert_eq!(pass_on_in(imitated("cpuset cpu io memory pids\n", "").path()), "+memory +pids");
        assert_eq!(pass_on_in(imitated("memory pids\n", "cpu pids\n").path()), "+memory");
        assert_eq!(pass_on_in(imitated("memory pids\n", "memory pids\n").path()), "memory pids\n");
        assert_eq!(pass_on_in(imitated("pids\n", "").path()), "+pids");
    }

    /// Says to the test below that its process runs no other test.
    const OWN_PROCESS: &str = "CGROUP_TEST_OWN_PROCESS";

    /// Uses the cgroup2 file system of this machine, if this user may make cgroups in it. The test moves its process into other
    /// cgroups. So it starts itself again, in a process without other tests, which use the cgroup of their process.
    #[test]
    fn only_a_dedicated_server_that_is_alone_in_its_cgroup_makes_room_in_it() {
        if std::env::var_os(OWN_PROCESS).is_none() {
            let name = "cgroup::base::tests::only_a_dedicated_server_that_is_alone_in_its_cgroup_makes_room_in_it";
            let output = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--nocapture"])
                .env(OWN_PROCESS, "1")
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
            return;
        }
        let Ok(location) = CgroupLocation::find() else { return };
        let base = location.own.join(format!("exec-server-test-room-{}", std::process::id()));
        if fs::create_dir(&base).is_err() || fs::write(base.join("cgroup.procs"), "0").is_err() {
            return eprintln!("skipped: cannot make a cgroup in {}", location.own.display());
        }
        let own = || CgroupLocation::find().unwrap().own;
        let make_room = |base| make_room(base, MayMove::IfAlone);
        assert!(is_busy(&make_room(&base).unwrap_err()), "the process is not dedicated to the server");
        let _host = crate::HostProcess::dedicate().unwrap();
        let mut neighbour = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(is_busy(&make_room(&base).unwrap_err()), "another process is in the cgroup");
        neighbour.kill().unwrap();
        neighbour.wait().unwrap();
        assert_eq!(own(), base);
        assert!(make_room(&base).unwrap());
        assert_eq!(own(), base.join(SELF_DIRECTORY));
        assert!(!make_room(&base).unwrap(), "there is room already");

        // Another server uses the base.
        fs::create_dir(base.join("exec-server-beef")).unwrap();
        give_back();
        assert_eq!(own(), base.join(SELF_DIRECTORY));
        fs::remove_dir(base.join("exec-server-beef")).unwrap();
        // The guard of this server is still there.
        let mut guard = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        give_back();
        assert_eq!(own(), base);
        assert!(base.join(SELF_DIRECTORY).exists());
        guard.kill().unwrap();
        guard.wait().unwrap();
        assert!(make_room(&base).unwrap());
        give_back();
        assert_eq!(own(), base);
        assert!(!base.join(SELF_DIRECTORY).exists());
        fs::write(location.own.join("cgroup.procs"), "0").unwrap();
        fs::remove_dir(&base).unwrap();
    }

    /// A server whose own cgroup lacks the controllers, below a cgroup that has them.
    fn below_a_cgroup_with_controllers() -> (tempfile::TempDir, CgroupLocation) {
        let parent = imitated("memory pids\n", "memory pids\n");
        let own = parent.path().join("own");
        fs::create_dir(&own).unwrap();
        fs::write(own.join("cgroup.controllers"), "").unwrap();
        let location = CgroupLocation { mount_point: parent.path().to_owned(), own };
        (parent, location)
    }

    #[test]
    fn the_parent_is_the_base_only_if_it_is_delegated_and_the_own_cgroup_has_no_limits() {
        let (parent, location) = below_a_cgroup_with_controllers();
        let problem = choose_at(&location).unwrap_err();
        assert!(problem.contains("/own lacks the memory controller and the pids controller"), "{problem}");

        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(parent.path(), "user.delegate", b"1", flags).is_err() {
            return eprintln!("skipped: the temporary folder has no extended attributes");
        }
        assert_eq!(choose_at(&location).unwrap().directory, parent.path());
        for (file, unlimited, limited) in [
            ("memory.max", "max\n", "104857600\n"),
            ("cpu.max", "max 100000\n", "50000 100000\n"),
            ("io.max", "", "8:0 rbps=9\n"),
        ] {
            fs::write(location.own.join(file), unlimited).unwrap();
            assert_eq!(choose_at(&location).unwrap().directory, parent.path(), "{file}");
            fs::write(location.own.join(file), limited).unwrap();
            let problem = choose_at(&location).unwrap_err();
            assert!(problem.contains(&format!("the limit in {}", location.own.join(file).display())), "{problem}");
            fs::remove_file(location.own.join(file)).unwrap();
        }
    }

    #[test]
    fn a_server_in_the_cgroup_of_another_server_uses_the_base_of_that_server() {
        let (parent, location) = below_a_cgroup_with_controllers();
        let own = parent.path().join(SELF_DIRECTORY);
        fs::rename(&location.own, &own).unwrap();
        let location = CgroupLocation { own, ..location };
        assert_eq!(choose_at(&location).unwrap().directory, parent.path());
        fs::write(location.own.join("pids.max"), "30\n").unwrap();
        assert!(choose_at(&location).unwrap_err().contains("exec-server-self lacks"));
    }

    #[test]
    fn a_base_without_the_controllers_is_refused_with_the_fix() {
        let problem = prepare(imitated("hugetlb\n", "").path(), MayMove::Never).unwrap_err();
        assert!(problem.contains("lacks the memory controller and the pids controller; "), "{problem}");
        assert!(prepare(Path::new("/nonexistent"), MayMove::Never).is_err());
    }

    #[test]
    fn a_controller_that_the_kernel_was_started_without_is_recognised() {
        let text = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t9\t1\nmemory\t0\t9\t0\npids\t0\t10\t1\n";
        assert_eq!(disabled_at_boot(text), Controllers { memory: true, pids: false });
        assert_eq!(disabled_at_boot("memory 0 9 1\nmemory_other 0 9 0\n"), Controllers::default());
        assert_eq!(disabled_at_boot(""), Controllers::default());
    }

    #[test]
    fn a_threaded_cgroup_and_one_with_processes_are_no_base_even_if_nothing_is_to_be_enabled() {
        let folder = imitated("pids\n", "pids\n");
        fs::write(folder.path().join("cgroup.type"), "threaded\n").unwrap();
        let problem = prepare(folder.path(), MayMove::IfAlone).unwrap_err();
        assert!(problem.contains("cgroup.type is `threaded`"), "{problem}");
        fs::write(folder.path().join("cgroup.type"), "domain threaded\n").unwrap();
        fs::write(folder.path().join("cgroup.procs"), "1\n").unwrap();
        let problem = prepare(folder.path(), MayMove::IfAlone).unwrap_err();
        assert!(problem.contains("there are processes in the cgroup"), "{problem}");
    }
}
