//! The rules one by one, and then all of them against a model of a file system and of somebody who applies what is told.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SETTLE: Duration = Duration::from_millis(50);

fn coalescer() -> Coalescer {
    Coalescer::new(SETTLE, 1000)
}

/// Applies events to files and returns what is told, as `+created ~modified -removed from>to`.
fn coalesced(events: &[(&str, PathEvent)]) -> String {
    let mut coalescer = coalescer();
    for (path, event) in events {
        let is_directory = path.ends_with('/');
        let path = PathBuf::from(path.trim_end_matches('/'));
        coalescer.push(Instant::now(), path, is_directory, event.clone());
    }
    let (changes, is_overflow) = coalescer.take();
    assert!(!is_overflow);
    changes.iter().map(shown).collect::<Vec<_>>().join(" ")
}

fn shown(change: &PathChange) -> String {
    let path = change.path.display();
    let slash = if change.is_directory { "/" } else { "" };
    match &change.kind {
        PathChangeKind::Created => format!("+{path}{slash}"),
        PathChangeKind::Modified => format!("~{path}{slash}"),
        PathChangeKind::Removed => format!("-{path}{slash}"),
        PathChangeKind::Renamed { from } => format!("{}>{path}{slash}", from.display()),
    }
}

fn renamed(from: &str) -> PathEvent {
    PathEvent::Renamed { from: from.into() }
}

#[test]
fn many_happenings_become_one() {
    use PathEvent::{Created, Listed, Modified, MovedIn, Removed};
    assert_eq!(coalesced(&[("a", Created), ("a", Modified), ("a", Modified)]), "+a");
    assert_eq!(coalesced(&[("a", Modified), ("a", Modified)]), "~a");
    assert_eq!(coalesced(&[("a", Created), ("a", Removed)]), "");
    assert_eq!(coalesced(&[("a", Modified), ("a", Removed)]), "-a");
    assert_eq!(coalesced(&[("a", Removed), ("a", Created)]), "~a");
    assert_eq!(coalesced(&[("a", Removed), ("a", Created), ("a", Removed)]), "-a");
    assert_eq!(coalesced(&[("a", Listed), ("a", Created)]), "+a");
    assert_eq!(coalesced(&[("a", MovedIn), ("a", Removed)]), "-a", "it may have replaced an older one");
    assert_eq!(coalesced(&[("a", Created), ("a", MovedIn), ("a", Removed)]), "");
    assert_eq!(coalesced(&[("a", Modified), ("a", MovedIn)]), "~a");
}

#[test]
fn renames_are_followed() {
    use PathEvent::{Created, Modified, Removed};
    assert_eq!(coalesced(&[("b", renamed("a"))]), "a>b");
    assert_eq!(coalesced(&[("a", Modified), ("b", renamed("a"))]), "a>b ~b");
    assert_eq!(coalesced(&[("b", renamed("a")), ("c", renamed("b"))]), "-b a>c", "b may have been replaced");
    assert_eq!(coalesced(&[("b", Created), ("b", Removed), ("b", Created), ("c", renamed("b"))]), "+c");
    assert_eq!(coalesced(&[("b", renamed("a")), ("b", Removed)]), "-a -b");
    assert_eq!(coalesced(&[("b", renamed("a")), ("a", renamed("b"))]), "-b");
    assert_eq!(coalesced(&[("b", renamed("a")), ("b", Modified), ("a", renamed("b"))]), "~a -b");
    assert_eq!(coalesced(&[("b", renamed("a")), ("a", Created)]), "a>b +a");
    assert_eq!(coalesced(&[("f.2", renamed("f.1")), ("f.1", renamed("f")), ("f", Created)]), "f.1>f.2 f>f.1 +f");
}

#[test]
fn what_editors_do_is_a_modification() {
    use PathEvent::{Created, Modified, Removed};
    let with_backup = [("f~", renamed("f")), ("f", Created), ("f", Modified), ("f~", Removed)];
    assert_eq!(coalesced(&with_backup), "~f -f~");
    let with_known_file = [("f", Modified), ("t", Created), ("t", Modified), ("f", renamed("t"))];
    assert_eq!(coalesced(&with_known_file), "~f");
    assert_eq!(coalesced(&[("t", Created), ("t", Modified), ("f", renamed("t"))]), "+f");
}

#[test]
fn a_directory_takes_what_is_below_with_it() {
    use PathEvent::{Created, Modified, Removed};
    assert_eq!(coalesced(&[("d/", Created), ("d/a", Created), ("d/", Removed)]), "");
    assert_eq!(coalesced(&[("d/a", Created), ("d/b", Removed), ("d-x", Modified), ("d/", Removed)]), "~d-x -d/");
    assert_eq!(coalesced(&[("d/", Removed), ("d/", Created), ("d/a", Created)]), "-d/ +d/ +d/a");
    assert_eq!(coalesced(&[("d/b", renamed("a")), ("d/", Removed)]), "-a -d/");
    assert_eq!(coalesced(&[("a", renamed("d/a")), ("d/", Removed)]), "d/a>a -d/");
    assert_eq!(coalesced(&[("d/a", Created), ("e/", renamed("d")), ("e/a", Modified)]), "+d/a d>e/ ~e/a");
}

#[test]
fn the_first_change_starts_the_clock() {
    let mut coalescer = coalescer();
    let start = Instant::now();
    assert_eq!(coalescer.due(), None);
    coalescer.push(start, "a".into(), false, PathEvent::Modified);
    coalescer.push(start + SETTLE / 2, "a".into(), false, PathEvent::Modified);
    assert_eq!(coalescer.due(), Some(start + SETTLE));
    assert_eq!(coalescer.take().0.len(), 1);
    assert_eq!(coalescer.due(), None);
}

#[test]
fn too_much_is_an_overflow_and_then_it_goes_on() {
    let mut coalescer = Coalescer::new(SETTLE, 10);
    for number in 0..100 {
        coalescer.push(Instant::now(), format!("{number}").into(), false, PathEvent::Created);
    }
    assert_eq!(coalescer.take(), (vec![], true));
    coalescer.push(Instant::now(), "a".into(), false, PathEvent::Created);
    assert_eq!(coalescer.take().0.len(), 1);
}

#[test]
fn what_was_found_may_be_told_again_by_the_kernel_and_is_then_not_new() {
    let mut coalescer = coalescer();
    coalescer.push(Instant::now(), "d/a".into(), false, PathEvent::Listed);
    assert_eq!(coalescer.take().0.len(), 1);
    coalescer.push(Instant::now(), "d/a".into(), false, PathEvent::Created);
    coalescer.push(Instant::now(), "d/a".into(), false, PathEvent::Removed);
    assert_eq!(coalescer.take().0.iter().map(shown).collect::<Vec<_>>(), ["-d/a"]);
}

/// What is at a path: a directory, or a file by the number of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Directory,
    File(u64),
    /// For the reader: there is a file, and its content will be read at the end.
    Unread,
}

type FileTree = BTreeMap<PathBuf, Item>;

const PATHS: &[&str] = &["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "e", "e/a", "e/b"];

#[derive(Clone, Copy, Debug)]
enum ModelStep {
    Make(usize),
    MakeDirectory(usize),
    Write(usize),
    Remove(usize),
    Rename(usize, usize),
    Arrive(usize),
    Deliver,
}

fn step() -> impl Strategy<Value = ModelStep> {
    let path = || 0..PATHS.len();
    prop_oneof![
        3 => path().prop_map(ModelStep::Make),
        2 => path().prop_map(ModelStep::MakeDirectory),
        2 => path().prop_map(ModelStep::Write),
        3 => path().prop_map(ModelStep::Remove),
        6 => (path(), path()).prop_map(|(from, to)| ModelStep::Rename(from, to)),
        1 => path().prop_map(ModelStep::Arrive),
        1 => Just(ModelStep::Deliver),
    ]
}

struct Model {
    tree: FileTree,
    reader: FileTree,
    coalescer: Coalescer,
    contents: u64,
}

impl Model {
    fn push_event(&mut self, path: &Path, is_directory: bool, event: PathEvent) {
        self.coalescer.push(Instant::now(), path.to_owned(), is_directory, event);
    }

    fn content(&mut self) -> Item {
        self.contents += 1;
        Item::File(self.contents)
    }

    fn has_parent(&self, path: &Path) -> bool {
        let parent = path.parent().unwrap();
        parent.as_os_str().is_empty() || self.tree.get(parent) == Some(&Item::Directory)
    }

    fn step(&mut self, step: ModelStep) {
        match step {
            ModelStep::Make(at) | ModelStep::MakeDirectory(at) => {
                let path = Path::new(PATHS[at]);
                if self.tree.contains_key(path) || !self.has_parent(path) {
                    return;
                }
                let is_directory = matches!(step, ModelStep::MakeDirectory(_));
                let item = if is_directory { Item::Directory } else { self.content() };
                self.tree.insert(path.into(), item);
                self.push_event(path, is_directory, PathEvent::Created);
            }
            ModelStep::Write(at) => {
                let path = Path::new(PATHS[at]);
                if let Some(Item::File(_)) = self.tree.get(path) {
                    let item = self.content();
                    self.tree.insert(path.into(), item);
                    self.push_event(path, false, PathEvent::Modified);
                }
            }
            ModelStep::Remove(at) => {
                // With what is below, as when it is moved out of the tree.
                let path = Path::new(PATHS[at]);
                if let Some(item) = self.tree.get(path).copied() {
                    remove(&mut self.tree, path);
                    self.push_event(path, item == Item::Directory, PathEvent::Removed);
                }
            }
            ModelStep::Arrive(at) => {
                let path = Path::new(PATHS[at]);
                if self.has_parent(path) && self.tree.get(path) != Some(&Item::Directory) {
                    let item = self.content();
                    self.tree.insert(path.into(), item);
                    self.push_event(path, false, PathEvent::MovedIn);
                }
            }
            ModelStep::Rename(from, to) => self.rename(Path::new(PATHS[from]), Path::new(PATHS[to])),
            ModelStep::Deliver => self.deliver(),
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) {
        let Some(item) = self.tree.get(from).copied() else { return };
        let is_directory = item == Item::Directory;
        let is_allowed = match self.tree.get(to) {
            None => self.has_parent(to) && !to.starts_with(from),
            Some(Item::Directory) => false,
            Some(_) => !is_directory && from != to,
        };
        if is_allowed {
            rename(&mut self.tree, from, to);
            self.push_event(to, is_directory, PathEvent::Renamed { from: from.into() });
        }
    }

    fn deliver(&mut self) {
        for change in self.coalescer.take().0 {
            match change.kind {
                PathChangeKind::Created | PathChangeKind::Modified if change.is_directory => {
                    self.reader.insert(change.path, Item::Directory);
                }
                PathChangeKind::Created | PathChangeKind::Modified => {
                    self.reader.insert(change.path, Item::Unread);
                }
                PathChangeKind::Removed => remove(&mut self.reader, &change.path),
                PathChangeKind::Renamed { from } => {
                    assert!(self.reader.contains_key(&from), "{from:?} is not known");
                    rename(&mut self.reader, &from, &change.path);
                }
            }
        }
        for (path, item) in &mut self.reader {
            if *item == Item::Unread {
                *item = *self.tree.get(path).expect("what is told to be there is there");
            }
        }
        assert_eq!(self.reader, self.tree);
    }
}

fn remove(tree: &mut FileTree, path: &Path) {
    tree.retain(|one, _| !one.starts_with(path));
}

fn rename(tree: &mut FileTree, from: &Path, to: &Path) {
    remove(tree, to);
    let moved: Vec<PathBuf> = tree.keys().filter(|one| one.starts_with(from)).cloned().collect();
    for old in moved {
        let item = tree.remove(&old).unwrap();
        let below = old.strip_prefix(from).unwrap();
        let new = if below.as_os_str().is_empty() { to.to_owned() } else { to.join(below) };
        tree.insert(new, item);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applying_what_is_told_leads_to_what_is_there(steps in prop::collection::vec(step(), 1..60)) {
        let mut model =
            Model { tree: FileTree::new(), reader: FileTree::new(), coalescer: coalescer(), contents: 0 };
        for step in steps {
            model.step(step);
        }
        model.deliver();
    }
}
