//! Tests of [`TreeState`] with a file system in memory, which can change between any two steps of the watcher. The
//! watcher is the thread that reads events, scans directories and passes both to the tree. A [`Simulation`] runs it
//! step by step, and applies the reported changes to the entries that a receiver of the changes would know. At the
//! end, the receiver must know exactly the entries that exist.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;

use super::super::pending_renames::SECOND_EVENT_TIMEOUT;
use super::*;

type Inode = usize;

/// The root of the watched tree.
const TOP: Inode = 0;
/// A directory outside of the watched tree.
const OUTSIDE: Inode = 1;
const ENTRY_NAMES: [&str; 3] = ["a", "b", "c"];

/// A file system in memory with its inotify queue.
#[derive(Default)]
struct Disk {
    /// The entries of each directory; `None` for a file. The index is the inode.
    inodes: Vec<Option<BTreeMap<OsString, Inode>>>,
    /// The watched directories.
    descriptors: HashMap<Inode, WatchDescriptor>,
    last_descriptor: WatchDescriptor,
    last_cookie: u32,
    queue: Vec<InotifyEvent>,
}

impl Disk {
    fn new() -> Self {
        let mut disk = Self { inodes: vec![Some(BTreeMap::new()), Some(BTreeMap::new())], ..Self::default() };
        disk.watch(TOP);
        disk
    }

    fn watch(&mut self, inode: Inode) -> WatchDescriptor {
        if !self.descriptors.contains_key(&inode) {
            self.last_descriptor += 1;
            self.descriptors.insert(inode, self.last_descriptor);
        }
        self.descriptors[&inode]
    }

    fn unwatch(&mut self, descriptor: WatchDescriptor) {
        self.descriptors.retain(|_, watched| *watched != descriptor);
    }

    fn children(&self, inode: Inode) -> Option<&BTreeMap<OsString, Inode>> {
        self.inodes[inode].as_ref()
    }

    fn children_mut(&mut self, inode: Inode) -> &mut BTreeMap<OsString, Inode> {
        self.inodes[inode].as_mut().expect("a directory")
    }

    /// Finds an entry by its path relative to [`TOP`].
    fn find(&self, path: &Path) -> Option<Inode> {
        path.iter().try_fold(TOP, |at, name| self.children(at)?.get(name).copied())
    }

    /// The directory that contains the last name of a path, and that name.
    fn parent_and_name(&self, path: &Path) -> Option<(Inode, OsString)> {
        let parent = self.find(path.parent()?)?;
        self.children(parent)?;
        Some((parent, path.file_name()?.to_owned()))
    }

    fn queue_event(&mut self, parent: Inode, name: &OsStr, inode: Inode, flags: ReadFlags, cookie: u32) {
        let Some(&descriptor) = self.descriptors.get(&parent) else { return };
        let flags = if self.children(inode).is_some() { flags | ReadFlags::ISDIR } else { flags };
        self.queue.push(InotifyEvent { descriptor, flags, cookie, name: Some(name.to_owned()) });
    }

    fn make(&mut self, path: &Path, is_directory: bool) {
        let Some((parent, name)) = self.parent_and_name(path) else { return };
        if self.children_mut(parent).contains_key(&name) {
            return;
        }
        let inode = self.inodes.len();
        self.inodes.push(is_directory.then(BTreeMap::new));
        self.children_mut(parent).insert(name.clone(), inode);
        self.queue_event(parent, &name, inode, ReadFlags::CREATE, 0);
    }

    fn remove(&mut self, path: &Path) {
        let Some(inode) = self.find(path) else { return };
        let below: Vec<OsString> = self.children(inode).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        for name in below {
            self.remove(&path.join(name));
        }
        let Some((parent, name)) = self.parent_and_name(path) else { return };
        self.children_mut(parent).remove(&name);
        self.queue_event(parent, &name, inode, ReadFlags::DELETE, 0);
        self.drop_descriptor(inode);
    }

    /// Removes a deleted directory from inotify, as the kernel does.
    fn drop_descriptor(&mut self, inode: Inode) {
        if let Some(descriptor) = self.descriptors.remove(&inode) {
            self.queue.push(InotifyEvent { descriptor, flags: ReadFlags::IGNORED, cookie: 0, name: None });
        }
    }

    fn rename(&mut self, from: (Inode, OsString), to: (Inode, OsString)) {
        let Some(inode) = self.children_mut(from.0).get(&from.1).copied() else { return };
        let replaced = self.children_mut(to.0).get(&to.1).copied();
        let is_possible = replaced.is_none_or(|replaced| match (self.children(inode), self.children(replaced)) {
            (Some(_), Some(children)) => children.is_empty(),
            (None, None) => true,
            _ => false,
        });
        if !is_possible || replaced == Some(inode) || self.is_at_or_above(inode, to.0) {
            return;
        }
        self.children_mut(from.0).remove(&from.1);
        self.children_mut(to.0).insert(to.1.clone(), inode);
        self.queue_rename_events(&from, &to, inode);
        if let Some(replaced) = replaced {
            self.drop_descriptor(replaced);
        }
    }

    fn exchange(&mut self, from: (Inode, OsString), to: (Inode, OsString)) {
        let first = self.children_mut(from.0).get(&from.1).copied();
        let second = self.children_mut(to.0).get(&to.1).copied();
        let (Some(first), Some(second)) = (first, second) else { return };
        if self.is_at_or_above(first, to.0) || self.is_at_or_above(second, from.0) || first == second {
            return;
        }
        self.children_mut(from.0).insert(from.1.clone(), second);
        self.children_mut(to.0).insert(to.1.clone(), first);
        self.queue_rename_events(&from, &to, first);
        self.queue_rename_events(&to, &from, second);
    }

    fn queue_rename_events(&mut self, from: &(Inode, OsString), to: &(Inode, OsString), inode: Inode) {
        self.last_cookie += 1;
        self.queue_event(from.0, &from.1, inode, ReadFlags::MOVED_FROM, self.last_cookie);
        self.queue_event(to.0, &to.1, inode, ReadFlags::MOVED_TO, self.last_cookie);
    }

    /// Whether `below` is `inode` itself or somewhere below it.
    fn is_at_or_above(&self, inode: Inode, below: Inode) -> bool {
        inode == below
            || self
                .children(inode)
                .is_some_and(|children| children.values().any(|&child| self.is_at_or_above(child, below)))
    }

    /// All absolute paths below [`TOP`], with the inode of each.
    fn contents(&self) -> BTreeMap<PathBuf, Inode> {
        let mut found = BTreeMap::new();
        let mut remaining = vec![(PathBuf::from("/"), TOP)];
        while let Some((path, inode)) = remaining.pop() {
            for (name, &child) in self.children(inode).into_iter().flatten() {
                found.insert(path.join(name), child);
                remaining.push((path.join(name), child));
            }
        }
        found
    }

    fn list(&self, inode: Inode) -> ScannedEntries {
        let children = self.children(inode).into_iter().flatten();
        let entries = children.map(|(name, &child)| (name.clone(), self.children(child).is_some())).collect();
        ScannedEntries { entries, is_incomplete: false }
    }
}

#[derive(Clone, Debug)]
enum SimulationStep {
    MakeFile(PathBuf),
    MakeDirectory(PathBuf),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
    Exchange(PathBuf, PathBuf),
    /// Moves an entry to a directory outside of the tree.
    MoveOut(PathBuf),
    /// Moves the entry that was last moved out back into the tree, to this path.
    MoveIn(PathBuf),
    /// The watcher makes one step.
    Advance,
    /// Enough time passes for the watcher to stop waiting for the second event of a rename. Ignored during a scan,
    /// because the watcher does not wait then.
    Wait,
}

/// The last step that the watcher has made in the scan of a directory.
enum ScanStep {
    /// No scan is in progress.
    Idle,
    /// The inode is `None` if the directory was not found.
    Opened(DirectoryId, Option<Inode>),
    AddedToInotify(DirectoryId, Inode, WatchDescriptor),
    Listed(DirectoryId, DirectoryScan),
}

struct Simulation {
    disk: Disk,
    tree: TreeState,
    scan: ScanStep,
    /// The paths that a receiver of the reports knows, and whether each is a directory.
    known: BTreeMap<PathBuf, bool>,
    overflows: usize,
    now: Instant,
}

impl Simulation {
    fn new() -> Self {
        let disk = Disk::new();
        let config = TreeConfig { root: "/".into(), root_parent: None, is_recursive: true, max_directories: 1000 };
        let tree = TreeState::new(config, disk.descriptors[&TOP]);
        let (scan, known, now) = (ScanStep::Idle, BTreeMap::new(), Instant::now());
        let mut simulation = Self { disk, tree, scan, known, overflows: 0, now };
        simulation.finish();
        // The receiver lists the tree when the watch begins.
        simulation.tree.prepare_for_receiver_listing();
        simulation
    }

    fn step(&mut self, step: &SimulationStep) {
        let locate = |path: &Path| self.disk.parent_and_name(path);
        match step {
            SimulationStep::MakeFile(path) => self.disk.make(path, false),
            SimulationStep::MakeDirectory(path) => self.disk.make(path, true),
            SimulationStep::Remove(path) => self.disk.remove(path),
            SimulationStep::Rename(from, to) | SimulationStep::Exchange(from, to) => {
                let (Some(from), Some(to)) = (locate(from), locate(to)) else { return };
                match step {
                    SimulationStep::Exchange(..) => self.disk.exchange(from, to),
                    _ => self.disk.rename(from, to),
                }
            }
            SimulationStep::MoveOut(path) => {
                let Some(from) = locate(path) else { return };
                self.disk.rename(from, (OUTSIDE, "a".into()));
            }
            SimulationStep::MoveIn(path) => {
                let Some(to) = locate(path) else { return };
                self.disk.rename((OUTSIDE, "a".into()), to);
            }
            SimulationStep::Advance => {
                self.advance();
            }
            SimulationStep::Wait if matches!(self.scan, ScanStep::Idle) => self.wait(),
            SimulationStep::Wait => {}
        }
    }

    fn wait(&mut self) {
        self.read_events();
        self.now += SECOND_EVENT_TIMEOUT;
        let known = &mut self.known;
        self.tree.expire_pending_renames(self.now, &mut |path, is_directory, event| {
            apply(known, path, is_directory, event);
        });
    }

    fn read_events(&mut self) {
        let events = std::mem::take(&mut self.disk.queue);
        self.handle(&events);
    }

    fn handle(&mut self, events: &[InotifyEvent]) {
        let known = &mut self.known;
        let report = &mut |path, is_directory, event| apply(known, path, is_directory, event);
        for event in events {
            self.tree.handle(event, self.now, report).unwrap();
        }
    }

    /// Makes one step of the watcher. Returns false if the watcher has nothing to do.
    fn advance(&mut self) -> bool {
        self.scan = match std::mem::replace(&mut self.scan, ScanStep::Idle) {
            ScanStep::Idle => {
                for descriptor in self.tree.take_unneeded() {
                    self.disk.unwatch(descriptor);
                }
                if self.tree.is_out_of_sync() {
                    self.rescan();
                    return true;
                }
                if self.tree.take_needs_overflow() {
                    self.read_events();
                    self.deliver_overflow();
                    return true;
                }
                match self.tree.next_unscanned() {
                    Some((directory, path)) => {
                        let below = path.strip_prefix("/").unwrap();
                        ScanStep::Opened(directory, self.disk.find(below))
                    }
                    None if self.disk.queue.is_empty() => return false,
                    None => {
                        self.read_events();
                        ScanStep::Idle
                    }
                }
            }
            ScanStep::Opened(directory, Some(inode)) if self.disk.children(inode).is_some() => {
                ScanStep::AddedToInotify(directory, inode, self.disk.watch(inode))
            }
            ScanStep::Opened(directory, Some(_)) => ScanStep::Listed(directory, DirectoryScan::Refused(None)),
            ScanStep::Opened(directory, None) => ScanStep::Listed(directory, DirectoryScan::Missing),
            ScanStep::AddedToInotify(directory, inode, descriptor) => {
                ScanStep::Listed(directory, DirectoryScan::Listed(descriptor, self.disk.list(inode)))
            }
            ScanStep::Listed(directory, scan) => {
                let events = std::mem::take(&mut self.disk.queue);
                let known = &mut self.known;
                let report = &mut |path, is_directory, event| apply(known, path, is_directory, event);
                self.tree.handle_scan(directory, scan, &events, report).unwrap();
                self.handle(&events);
                ScanStep::Idle
            }
        };
        true
    }

    /// Scans the whole tree again. No other step of the simulation comes in between.
    fn rescan(&mut self) {
        self.read_events();
        self.tree.reset();
        while self.tree.next_unscanned().is_some() {
            assert!(!self.tree.is_out_of_sync());
            self.advance();
        }
        self.deliver_overflow();
    }

    fn deliver_overflow(&mut self) {
        self.overflows += 1;
        self.tree.prepare_for_receiver_listing();
        let contents = self.disk.contents();
        self.known = contents.into_iter().map(|(path, inode)| (path, self.disk.children(inode).is_some())).collect();
    }

    /// Lets the watcher make steps until it has nothing to do, before and after all pending renames time out.
    fn finish(&mut self) {
        while self.advance() {}
        self.wait();
        while self.advance() {}
    }

    /// Lets the watcher finish. Then checks that the receiver knows exactly the entries that exist, and that exactly
    /// the existing directories are watched.
    fn finish_and_check(&mut self) {
        self.finish();
        let contents = self.disk.contents();
        let expected: BTreeMap<PathBuf, bool> =
            contents.iter().map(|(path, &inode)| (path.clone(), self.disk.children(inode).is_some())).collect();
        assert_eq!(self.known, expected);
        for (path, inode) in contents {
            if self.disk.children(inode).is_some() {
                let descriptor =
                    self.disk.descriptors.get(&inode).unwrap_or_else(|| panic!("{path:?} is not watched"));
                let recorded =
                    self.tree.directories.by_descriptor(*descriptor).expect("each watched directory is recorded");
                assert_eq!(self.tree.directories.path(recorded), Some(path));
            }
        }
        assert_eq!(self.disk.descriptors.len(), self.tree.directories.len(), "no other directory is watched");
    }
}

/// Applies a report to the entries that the receiver knows.
fn apply(known: &mut BTreeMap<PathBuf, bool>, path: PathBuf, is_directory: bool, event: PathEvent) {
    match event {
        PathEvent::Created | PathEvent::Listed | PathEvent::MovedIn => {
            known.insert(path, is_directory);
        }
        PathEvent::Modified => {
            known.entry(path).and_modify(|known| *known = is_directory);
        }
        PathEvent::Removed => known.retain(|entry, _| !entry.starts_with(&path)),
        PathEvent::Renamed { from } => {
            known.retain(|entry, _| !entry.starts_with(&path));
            let moved: Vec<PathBuf> = known.keys().filter(|entry| entry.starts_with(&from)).cloned().collect();
            for old in moved {
                let kind = known.remove(&old).unwrap();
                let below = old.strip_prefix(&from).unwrap();
                known.insert(if below.as_os_str().is_empty() { path.clone() } else { path.join(below) }, kind);
            }
            known.insert(path, is_directory);
        }
    }
}

/// Runs the steps, lets the watcher finish and checks the result.
fn run(steps: &[SimulationStep]) -> Simulation {
    let mut simulation = Simulation::new();
    for step in steps {
        simulation.step(step);
    }
    simulation.finish_and_check();
    simulation
}

fn path() -> impl Strategy<Value = PathBuf> {
    prop::collection::vec(prop::sample::select(&ENTRY_NAMES[..]), 1..4).prop_map(|names| names.iter().collect())
}

fn step() -> impl Strategy<Value = SimulationStep> {
    prop_oneof![
        4 => path().prop_map(SimulationStep::MakeDirectory),
        2 => path().prop_map(SimulationStep::MakeFile),
        1 => path().prop_map(SimulationStep::Remove),
        4 => (path(), path()).prop_map(|(from, to)| SimulationStep::Rename(from, to)),
        1 => path().prop_map(SimulationStep::MoveOut),
        1 => path().prop_map(SimulationStep::MoveIn),
        10 => Just(SimulationStep::Advance),
        1 => Just(SimulationStep::Wait),
    ]
}

fn step_or_exchange() -> impl Strategy<Value = SimulationStep> {
    prop_oneof![12 => step(), 1 => (path(), path()).prop_map(|(from, to)| SimulationStep::Exchange(from, to))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_receiver_knows_all_entries_whatever_changes_between_two_steps_of_the_watcher(
        steps in prop::collection::vec(step_or_exchange(), 1..80)
    ) {
        run(&steps);
    }
}

#[test]
fn a_renamed_directory_and_a_new_one_with_its_old_name_are_both_known_without_an_overflow() {
    let steps = [
        SimulationStep::MakeDirectory("d".into()),
        SimulationStep::MakeDirectory("d/x".into()),
        SimulationStep::Rename("d".into(), "e".into()),
        SimulationStep::MakeDirectory("d".into()),
        SimulationStep::MakeDirectory("d/y".into()),
    ];
    // The watcher makes 0 to 19 steps at one point of the sequence, so that the next change comes after each possible
    // step of a scan.
    for advances in 0..20 {
        for at in 0..=steps.len() {
            let mut all = steps.to_vec();
            all.splice(at..at, vec![SimulationStep::Advance; advances]);
            assert_eq!(run(&all).overflows, 0, "{advances} steps of the watcher before change {at}");
        }
    }
}

#[test]
fn a_late_event_about_a_removed_file_does_not_hide_the_directory_that_has_its_name_now() {
    let mut simulation = Simulation::new();
    simulation.step(&SimulationStep::MakeFile("x".into()));
    let descriptor = simulation.disk.queue[0].descriptor;
    simulation.step(&SimulationStep::Remove("x".into()));
    simulation.step(&SimulationStep::MakeDirectory("x".into()));
    let name = Some("x".into());
    simulation.disk.queue.push(InotifyEvent { descriptor, flags: ReadFlags::MODIFY, cookie: 0, name });
    simulation.finish_and_check();
}

#[test]
fn an_exchange_of_two_names_is_reported_as_an_overflow() {
    for (make, have_entries) in
        [(SimulationStep::MakeFile as fn(PathBuf) -> SimulationStep, false), (SimulationStep::MakeDirectory, true)]
    {
        let mut steps = vec![make("a".into()), make("b".into())];
        if have_entries {
            steps.extend([SimulationStep::MakeFile("a/x".into()), SimulationStep::MakeFile("b/y".into())]);
        }
        steps.extend(vec![SimulationStep::Advance; 30]);
        steps.push(SimulationStep::Exchange("a".into(), "b".into()));
        assert_eq!(run(&steps).overflows, 1);
    }
}

#[test]
fn the_removal_of_an_entry_that_was_moved_out_is_reported_at_the_new_path_of_its_renamed_directory() {
    let mut steps = vec![SimulationStep::MakeDirectory("c".into()), SimulationStep::MakeDirectory("c/a".into())];
    steps.extend(vec![SimulationStep::Advance; 30]);
    steps.extend([
        SimulationStep::MoveOut("c/a".into()),
        SimulationStep::Rename("c".into(), "d".into()),
        SimulationStep::MakeDirectory("c".into()),
        SimulationStep::MakeDirectory("c/a".into()),
    ]);
    steps.extend(vec![SimulationStep::Advance; 30]);
    assert_eq!(run(&steps).overflows, 0);
}
