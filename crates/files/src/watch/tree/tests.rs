//! The tree against a disk in memory that changes between any two steps of the watcher.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::departures::PATIENCE;
use super::*;

type Inode = usize;

const TOP: Inode = 0;
/// A directory outside of the tree.
const ELSEWHERE: Inode = 1;
const NAMES_OF_ALL: [&str; 3] = ["a", "b", "c"];

/// Directories have children, files have none.
#[derive(Default)]
struct Disk {
    inodes: Vec<Option<BTreeMap<OsString, Inode>>>,
    numbers: HashMap<Inode, Number>,
    last_number: Number,
    last_cookie: u32,
    queue: Vec<Event>,
}

impl Disk {
    fn new() -> Self {
        let mut disk = Self { inodes: vec![Some(BTreeMap::new()), Some(BTreeMap::new())], ..Self::default() };
        disk.watch(TOP);
        disk
    }

    fn watch(&mut self, inode: Inode) -> Number {
        if !self.numbers.contains_key(&inode) {
            self.last_number += 1;
            self.numbers.insert(inode, self.last_number);
        }
        self.numbers[&inode]
    }

    fn unwatch(&mut self, number: Number) {
        self.numbers.retain(|_, one| *one != number);
    }

    fn children(&self, inode: Inode) -> Option<&BTreeMap<OsString, Inode>> {
        self.inodes[inode].as_ref()
    }

    fn children_mut(&mut self, inode: Inode) -> &mut BTreeMap<OsString, Inode> {
        self.inodes[inode].as_mut().expect("a directory")
    }

    fn find(&self, path: &Path) -> Option<Inode> {
        path.iter().try_fold(TOP, |at, name| self.children(at)?.get(name).copied())
    }

    /// The directory that holds the last name of a path, and that name.
    fn holder(&self, path: &Path) -> Option<(Inode, OsString)> {
        let holder = self.find(path.parent()?)?;
        self.children(holder)?;
        Some((holder, path.file_name()?.to_owned()))
    }

    fn tell(&mut self, holder: Inode, name: &OsStr, inode: Inode, flags: ReadFlags, cookie: u32) {
        let Some(&number) = self.numbers.get(&holder) else { return };
        let flags = if self.children(inode).is_some() { flags | ReadFlags::ISDIR } else { flags };
        self.queue.push(Event { number, flags, cookie, name: Some(name.to_owned()) });
    }

    fn make(&mut self, path: &Path, is_directory: bool) {
        let Some((holder, name)) = self.holder(path) else { return };
        if self.children_mut(holder).contains_key(&name) {
            return;
        }
        let inode = self.inodes.len();
        self.inodes.push(is_directory.then(BTreeMap::new));
        self.children_mut(holder).insert(name.clone(), inode);
        self.tell(holder, &name, inode, ReadFlags::CREATE, 0);
    }

    fn remove(&mut self, path: &Path) {
        let Some(inode) = self.find(path) else { return };
        let below: Vec<OsString> = self.children(inode).into_iter().flat_map(BTreeMap::keys).cloned().collect();
        for name in below {
            self.remove(&path.join(name));
        }
        let Some((holder, name)) = self.holder(path) else { return };
        self.children_mut(holder).remove(&name);
        self.tell(holder, &name, inode, ReadFlags::DELETE, 0);
        self.free(inode);
    }

    fn free(&mut self, inode: Inode) {
        if let Some(number) = self.numbers.remove(&inode) {
            self.queue.push(Event { number, flags: ReadFlags::IGNORED, cookie: 0, name: None });
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
        self.tell_rename(&from, &to, inode);
        if let Some(replaced) = replaced {
            self.free(replaced);
        }
    }

    fn exchange(&mut self, from: (Inode, OsString), to: (Inode, OsString)) {
        let one = self.children_mut(from.0).get(&from.1).copied();
        let other = self.children_mut(to.0).get(&to.1).copied();
        let (Some(one), Some(other)) = (one, other) else { return };
        if self.is_at_or_above(one, to.0) || self.is_at_or_above(other, from.0) || one == other {
            return;
        }
        self.children_mut(from.0).insert(from.1.clone(), other);
        self.children_mut(to.0).insert(to.1.clone(), one);
        self.tell_rename(&from, &to, one);
        self.tell_rename(&to, &from, other);
    }

    fn tell_rename(&mut self, from: &(Inode, OsString), to: &(Inode, OsString), inode: Inode) {
        self.last_cookie += 1;
        self.tell(from.0, &from.1, inode, ReadFlags::MOVED_FROM, self.last_cookie);
        self.tell(to.0, &to.1, inode, ReadFlags::MOVED_TO, self.last_cookie);
    }

    fn is_at_or_above(&self, inode: Inode, below: Inode) -> bool {
        inode == below
            || self
                .children(inode)
                .is_some_and(|children| children.values().any(|&child| self.is_at_or_above(child, below)))
    }

    /// All paths, with the inode of each.
    fn contents(&self) -> BTreeMap<PathBuf, Inode> {
        let mut found = BTreeMap::new();
        let mut left = vec![(PathBuf::from("/"), TOP)];
        while let Some((path, inode)) = left.pop() {
            for (name, &child) in self.children(inode).into_iter().flatten() {
                found.insert(path.join(name), child);
                left.push((path.join(name), child));
            }
        }
        found
    }

    fn list(&self, inode: Inode) -> Listing {
        let children = self.children(inode).into_iter().flatten();
        let entries = children.map(|(name, &child)| (name.clone(), self.children(child).is_some())).collect();
        Listing { entries, is_cut: false }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Make(PathBuf),
    MakeDirectory(PathBuf),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
    Exchange(PathBuf, PathBuf),
    MoveAway(PathBuf),
    MoveBack(PathBuf),
    /// The watcher does the next thing.
    Advance,
    /// Second halves that have not come are no longer waited for.
    Wait,
}

/// What the watcher has done of its look.
enum Progress {
    None,
    Opened(DirectoryId, Option<Inode>),
    Watched(DirectoryId, Inode, Number),
    Seen(DirectoryId, Look),
}

struct World {
    disk: Disk,
    tree: Tree,
    progress: Progress,
    /// What somebody knows who only listens; whether each path is a directory.
    known: BTreeMap<PathBuf, bool>,
    overflows: usize,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let disk = Disk::new();
        let tree = Tree::new(Path::new("/"), disk.numbers[&TOP], None, true, 1000);
        let (progress, known, now) = (Progress::None, BTreeMap::new(), Instant::now());
        let mut world = Self { disk, tree, progress, known, overflows: 0, now };
        world.finish();
        world.tree.announced();
        world
    }

    fn step(&mut self, step: &Step) {
        let below = |path: &Path| self.disk.holder(path);
        match step {
            Step::Make(path) => self.disk.make(path, false),
            Step::MakeDirectory(path) => self.disk.make(path, true),
            Step::Remove(path) => self.disk.remove(path),
            Step::Rename(from, to) | Step::Exchange(from, to) => {
                let (Some(from), Some(to)) = (below(from), below(to)) else { return };
                match step {
                    Step::Exchange(..) => self.disk.exchange(from, to),
                    _ => self.disk.rename(from, to),
                }
            }
            Step::MoveAway(path) => {
                let Some(from) = below(path) else { return };
                self.disk.rename(from, (ELSEWHERE, "a".into()));
            }
            Step::MoveBack(path) => {
                let Some(to) = below(path) else { return };
                self.disk.rename((ELSEWHERE, "a".into()), to);
            }
            Step::Advance => {
                self.advance();
            }
            Step::Wait if matches!(self.progress, Progress::None) => self.wait(),
            Step::Wait => {}
        }
    }

    fn wait(&mut self) {
        self.read();
        self.now += PATIENCE;
        let known = &mut self.known;
        self.tree.give_up_waiting(self.now, &mut |path, is_directory, happening| {
            apply(known, path, is_directory, happening);
        });
    }

    fn read(&mut self) {
        let events = std::mem::take(&mut self.disk.queue);
        self.handle(&events);
    }

    fn handle(&mut self, events: &[Event]) {
        let known = &mut self.known;
        let report = &mut |path, is_directory, happening| apply(known, path, is_directory, happening);
        for event in events {
            self.tree.handle(event, self.now, report).unwrap();
        }
    }

    /// Returns whether there was something to do.
    fn advance(&mut self) -> bool {
        self.progress = match std::mem::replace(&mut self.progress, Progress::None) {
            Progress::None => {
                for number in self.tree.take_unwanted() {
                    self.disk.unwatch(number);
                }
                if self.tree.has_lost_track() {
                    self.look_again();
                    return true;
                }
                if self.tree.take_unclear() {
                    self.read();
                    self.announce();
                    return true;
                }
                match self.tree.next_unlisted() {
                    Some((directory, path)) => {
                        let below = path.strip_prefix("/").unwrap();
                        Progress::Opened(directory, self.disk.find(below))
                    }
                    None if self.disk.queue.is_empty() => return false,
                    None => {
                        self.read();
                        Progress::None
                    }
                }
            }
            Progress::Opened(directory, Some(inode)) if self.disk.children(inode).is_some() => {
                Progress::Watched(directory, inode, self.disk.watch(inode))
            }
            Progress::Opened(directory, Some(_)) => Progress::Seen(directory, Look::Refused(None)),
            Progress::Opened(directory, None) => Progress::Seen(directory, Look::Missing),
            Progress::Watched(directory, inode, number) => {
                Progress::Seen(directory, Look::Listed(number, self.disk.list(inode)))
            }
            Progress::Seen(directory, look) => {
                let events = std::mem::take(&mut self.disk.queue);
                let known = &mut self.known;
                let report = &mut |path, is_directory, happening| apply(known, path, is_directory, happening);
                self.tree.looked(directory, look, &events, report).unwrap();
                self.handle(&events);
                Progress::None
            }
        };
        true
    }

    /// The disk stands still meanwhile.
    fn look_again(&mut self) {
        self.read();
        self.tree.begin_anew();
        while self.tree.next_unlisted().is_some() {
            assert!(!self.tree.has_lost_track());
            self.advance();
        }
        self.announce();
    }

    fn announce(&mut self) {
        self.overflows += 1;
        self.tree.announced();
        let contents = self.disk.contents();
        self.known = contents.into_iter().map(|(path, inode)| (path, self.disk.children(inode).is_some())).collect();
    }

    fn finish(&mut self) {
        while self.advance() {}
        self.wait();
        while self.advance() {}
    }

    fn check(&mut self) {
        self.finish();
        let contents = self.disk.contents();
        let expected: BTreeMap<PathBuf, bool> =
            contents.iter().map(|(path, &inode)| (path.clone(), self.disk.children(inode).is_some())).collect();
        assert_eq!(self.known, expected);
        for (path, inode) in contents {
            if self.disk.children(inode).is_some() {
                let number = self.disk.numbers.get(&inode).unwrap_or_else(|| panic!("{path:?} is not watched"));
                let recorded = self.tree.directories.by_number(*number).expect("the tree knows what is watched");
                assert_eq!(self.tree.directories.path(recorded), Some(path));
            }
        }
        assert_eq!(self.disk.numbers.len(), self.tree.directories.len(), "nothing else is watched");
    }
}

fn apply(known: &mut BTreeMap<PathBuf, bool>, path: PathBuf, is_directory: bool, happening: Happening) {
    match happening {
        Happening::Created | Happening::Found | Happening::Arrived => {
            known.insert(path, is_directory);
        }
        Happening::Modified => {}
        Happening::Removed => known.retain(|one, _| !one.starts_with(&path)),
        Happening::Renamed { from } => {
            known.retain(|one, _| !one.starts_with(&path));
            let moved: Vec<PathBuf> = known.keys().filter(|one| one.starts_with(&from)).cloned().collect();
            for old in moved {
                let kind = known.remove(&old).unwrap();
                let below = old.strip_prefix(&from).unwrap();
                known.insert(if below.as_os_str().is_empty() { path.clone() } else { path.join(below) }, kind);
            }
            known.insert(path, is_directory);
        }
    }
}

fn run(steps: &[Step]) -> World {
    let mut world = World::new();
    for step in steps {
        world.step(step);
    }
    world.check();
    world
}

fn path() -> impl Strategy<Value = PathBuf> {
    prop::collection::vec(prop::sample::select(&NAMES_OF_ALL[..]), 1..4).prop_map(|names| names.iter().collect())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => path().prop_map(Step::MakeDirectory),
        2 => path().prop_map(Step::Make),
        1 => path().prop_map(Step::Remove),
        4 => (path(), path()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => path().prop_map(Step::MoveAway),
        1 => path().prop_map(Step::MoveBack),
        10 => Just(Step::Advance),
        1 => Just(Step::Wait),
    ]
}

fn step_or_exchange() -> impl Strategy<Value = Step> {
    prop_oneof![12 => step(), 1 => (path(), path()).prop_map(|(from, to)| Step::Exchange(from, to))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_between_two_steps_of_the_watcher_nothing_is_lost(
        steps in prop::collection::vec(step_or_exchange(), 1..80)
    ) {
        run(&steps);
    }
}

#[test]
fn a_new_directory_that_is_renamed_and_made_again_is_two_directories() {
    let steps = [
        Step::MakeDirectory("d".into()),
        Step::MakeDirectory("d/x".into()),
        Step::Rename("d".into(), "e".into()),
        Step::MakeDirectory("d".into()),
        Step::MakeDirectory("d/y".into()),
    ];
    // The watcher does as much as it can before one of the steps, or between any two of its own.
    for advances in 0..20 {
        for at in 0..=steps.len() {
            let mut all = steps.to_vec();
            all.splice(at..at, vec![Step::Advance; advances]);
            assert_eq!(run(&all).overflows, 0, "{advances} advances before step {at}");
        }
    }
}

#[test]
fn two_names_that_change_places_are_an_overflow() {
    for (make, content) in [(Step::Make as fn(PathBuf) -> Step, false), (Step::MakeDirectory, true)] {
        let mut steps = vec![make("a".into()), make("b".into())];
        if content {
            steps.extend([Step::Make("a/x".into()), Step::Make("b/y".into())]);
        }
        steps.extend(vec![Step::Advance; 30]);
        steps.push(Step::Exchange("a".into(), "b".into()));
        assert_eq!(run(&steps).overflows, 1);
    }
}

#[test]
fn what_left_the_tree_is_removed_from_where_its_directory_is_now() {
    let mut steps = vec![Step::MakeDirectory("c".into()), Step::MakeDirectory("c/a".into())];
    steps.extend(vec![Step::Advance; 30]);
    steps.extend([
        Step::MoveAway("c/a".into()),
        Step::Rename("c".into(), "d".into()),
        Step::MakeDirectory("c".into()),
        Step::MakeDirectory("c/a".into()),
    ]);
    steps.extend(vec![Step::Advance; 30]);
    assert_eq!(run(&steps).overflows, 0);
}
