//! The rules one by one, and then all of them against a model of a file system and of somebody who applies what is told.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SETTLE: Duration = Duration::from_millis(50);

fn coalescer() -> Coalescer {
    Coalescer::new(SETTLE, 1000)
}

/// Applies happenings to files and returns what is told, as `+created ~modified -removed from>to`.
fn told(happenings: &[(&str, Happening)]) -> String {
    let mut coalescer = coalescer();
    for (path, happening) in happenings {
        let is_directory = path.ends_with('/');
        let path = PathBuf::from(path.trim_end_matches('/'));
        coalescer.push(Instant::now(), path, is_directory, happening.clone());
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

fn renamed(from: &str) -> Happening {
    Happening::Renamed { from: from.into() }
}

#[test]
fn many_happenings_become_one() {
    use Happening::{Arrived, Created, Found, Modified, Removed};
    assert_eq!(told(&[("a", Created), ("a", Modified), ("a", Modified)]), "+a");
    assert_eq!(told(&[("a", Modified), ("a", Modified)]), "~a");
    assert_eq!(told(&[("a", Created), ("a", Removed)]), "");
    assert_eq!(told(&[("a", Modified), ("a", Removed)]), "-a");
    assert_eq!(told(&[("a", Removed), ("a", Created)]), "~a");
    assert_eq!(told(&[("a", Removed), ("a", Created), ("a", Removed)]), "-a");
    assert_eq!(told(&[("a", Found), ("a", Created)]), "+a");
    assert_eq!(told(&[("a", Arrived), ("a", Removed)]), "-a", "it may have replaced an older one");
    assert_eq!(told(&[("a", Created), ("a", Arrived), ("a", Removed)]), "");
    assert_eq!(told(&[("a", Modified), ("a", Arrived)]), "~a");
}

#[test]
fn renames_are_followed() {
    use Happening::{Created, Modified, Removed};
    assert_eq!(told(&[("b", renamed("a"))]), "a>b");
    assert_eq!(told(&[("a", Modified), ("b", renamed("a"))]), "a>b ~b");
    assert_eq!(told(&[("b", renamed("a")), ("c", renamed("b"))]), "-b a>c", "b may have been replaced");
    assert_eq!(told(&[("b", Created), ("b", Removed), ("b", Created), ("c", renamed("b"))]), "+c");
    assert_eq!(told(&[("b", renamed("a")), ("b", Removed)]), "-a -b");
    assert_eq!(told(&[("b", renamed("a")), ("a", renamed("b"))]), "-b");
    assert_eq!(told(&[("b", renamed("a")), ("b", Modified), ("a", renamed("b"))]), "~a -b");
    assert_eq!(told(&[("b", renamed("a")), ("a", Created)]), "a>b +a");
    assert_eq!(told(&[("f.2", renamed("f.1")), ("f.1", renamed("f")), ("f", Created)]), "f.1>f.2 f>f.1 +f");
}

#[test]
fn what_editors_do_is_a_modification() {
    use Happening::{Created, Modified, Removed};
    let with_backup = [("f~", renamed("f")), ("f", Created), ("f", Modified), ("f~", Removed)];
    assert_eq!(told(&with_backup), "~f -f~");
    let with_known_file = [("f", Modified), ("t", Created), ("t", Modified), ("f", renamed("t"))];
    assert_eq!(told(&with_known_file), "~f");
    assert_eq!(told(&[("t", Created), ("t", Modified), ("f", renamed("t"))]), "+f");
}

#[test]
fn a_directory_takes_what_is_below_with_it() {
    use Happening::{Created, Modified, Removed};
    assert_eq!(told(&[("d/", Created), ("d/a", Created), ("d/", Removed)]), "");
    assert_eq!(told(&[("d/a", Created), ("d/b", Removed), ("d-x", Modified), ("d/", Removed)]), "~d-x -d/");
    assert_eq!(told(&[("d/", Removed), ("d/", Created), ("d/a", Created)]), "-d/ +d/ +d/a");
    assert_eq!(told(&[("d/b", renamed("a")), ("d/", Removed)]), "-a -d/");
    assert_eq!(told(&[("a", renamed("d/a")), ("d/", Removed)]), "d/a>a -d/");
    assert_eq!(told(&[("d/a", Created), ("e/", renamed("d")), ("e/a", Modified)]), "+d/a d>e/ ~e/a");
}

#[test]
fn the_first_change_starts_the_clock() {
    let mut coalescer = coalescer();
    let start = Instant::now();
    assert_eq!(coalescer.due(), None);
    coalescer.push(start, "a".into(), false, Happening::Modified);
    coalescer.push(start + SETTLE / 2, "a".into(), false, Happening::Modified);
    assert_eq!(coalescer.due(), Some(start + SETTLE));
    assert_eq!(coalescer.take().0.len(), 1);
    assert_eq!(coalescer.due(), None);
}

#[test]
fn too_much_is_an_overflow_and_then_it_goes_on() {
    let mut coalescer = Coalescer::new(SETTLE, 10);
    for number in 0..100 {
        coalescer.push(Instant::now(), format!("{number}").into(), false, Happening::Created);
    }
    assert_eq!(coalescer.take(), (vec![], true));
    coalescer.push(Instant::now(), "a".into(), false, Happening::Created);
    assert_eq!(coalescer.take().0.len(), 1);
}

#[test]
fn what_was_found_may_be_told_again_by_the_kernel_and_is_then_not_new() {
    let mut coalescer = coalescer();
    coalescer.push(Instant::now(), "d/a".into(), false, Happening::Found);
    assert_eq!(coalescer.take().0.len(), 1);
    coalescer.push(Instant::now(), "d/a".into(), false, Happening::Created);
    coalescer.push(Instant::now(), "d/a".into(), false, Happening::Removed);
    assert_eq!(coalescer.take().0.iter().map(shown).collect::<Vec<_>>(), ["-d/a"]);
}

/// What is at a path: a directory, or a file by the number of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    Directory,
    File(u64),
    /// For the reader: there is a file, and its content will be read at the end.
    Unread,
}

type Tree = BTreeMap<PathBuf, Thing>;

const PATHS: &[&str] = &["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "e", "e/a", "e/b"];

#[derive(Clone, Copy, Debug)]
enum Step {
    Make(usize),
    MakeDirectory(usize),
    Write(usize),
    Remove(usize),
    Rename(usize, usize),
    Arrive(usize),
    Deliver,
}

fn step() -> impl Strategy<Value = Step> {
    let path = || 0..PATHS.len();
    prop_oneof![
        3 => path().prop_map(Step::Make),
        2 => path().prop_map(Step::MakeDirectory),
        2 => path().prop_map(Step::Write),
        3 => path().prop_map(Step::Remove),
        6 => (path(), path()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => path().prop_map(Step::Arrive),
        1 => Just(Step::Deliver),
    ]
}

struct Model {
    tree: Tree,
    reader: Tree,
    coalescer: Coalescer,
    contents: u64,
}

impl Model {
    fn happened(&mut self, path: &Path, is_directory: bool, happening: Happening) {
        self.coalescer.push(Instant::now(), path.to_owned(), is_directory, happening);
    }

    fn content(&mut self) -> Thing {
        self.contents += 1;
        Thing::File(self.contents)
    }

    fn has_parent(&self, path: &Path) -> bool {
        let parent = path.parent().unwrap();
        parent.as_os_str().is_empty() || self.tree.get(parent) == Some(&Thing::Directory)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Make(at) | Step::MakeDirectory(at) => {
                let path = Path::new(PATHS[at]);
                if self.tree.contains_key(path) || !self.has_parent(path) {
                    return;
                }
                let is_directory = matches!(step, Step::MakeDirectory(_));
                let thing = if is_directory { Thing::Directory } else { self.content() };
                self.tree.insert(path.into(), thing);
                self.happened(path, is_directory, Happening::Created);
            }
            Step::Write(at) => {
                let path = Path::new(PATHS[at]);
                if let Some(Thing::File(_)) = self.tree.get(path) {
                    let thing = self.content();
                    self.tree.insert(path.into(), thing);
                    self.happened(path, false, Happening::Modified);
                }
            }
            Step::Remove(at) => {
                // With what is below, as when it is moved out of the tree.
                let path = Path::new(PATHS[at]);
                if let Some(thing) = self.tree.get(path).copied() {
                    remove(&mut self.tree, path);
                    self.happened(path, thing == Thing::Directory, Happening::Removed);
                }
            }
            Step::Arrive(at) => {
                let path = Path::new(PATHS[at]);
                if self.has_parent(path) && self.tree.get(path) != Some(&Thing::Directory) {
                    let thing = self.content();
                    self.tree.insert(path.into(), thing);
                    self.happened(path, false, Happening::Arrived);
                }
            }
            Step::Rename(from, to) => self.rename(Path::new(PATHS[from]), Path::new(PATHS[to])),
            Step::Deliver => self.deliver(),
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) {
        let Some(thing) = self.tree.get(from).copied() else { return };
        let is_directory = thing == Thing::Directory;
        let is_allowed = match self.tree.get(to) {
            None => self.has_parent(to) && !to.starts_with(from),
            Some(Thing::Directory) => false,
            Some(_) => !is_directory && from != to,
        };
        if is_allowed {
            rename(&mut self.tree, from, to);
            self.happened(to, is_directory, Happening::Renamed { from: from.into() });
        }
    }

    fn deliver(&mut self) {
        for change in self.coalescer.take().0 {
            match change.kind {
                PathChangeKind::Created | PathChangeKind::Modified if change.is_directory => {
                    self.reader.insert(change.path, Thing::Directory);
                }
                PathChangeKind::Created | PathChangeKind::Modified => {
                    self.reader.insert(change.path, Thing::Unread);
                }
                PathChangeKind::Removed => remove(&mut self.reader, &change.path),
                PathChangeKind::Renamed { from } => {
                    assert!(self.reader.contains_key(&from), "{from:?} is not known");
                    rename(&mut self.reader, &from, &change.path);
                }
            }
        }
        for (path, thing) in &mut self.reader {
            if *thing == Thing::Unread {
                *thing = *self.tree.get(path).expect("what is told to be there is there");
            }
        }
        assert_eq!(self.reader, self.tree);
    }
}

fn remove(tree: &mut Tree, path: &Path) {
    tree.retain(|one, _| !one.starts_with(path));
}

fn rename(tree: &mut Tree, from: &Path, to: &Path) {
    remove(tree, to);
    let moved: Vec<PathBuf> = tree.keys().filter(|one| one.starts_with(from)).cloned().collect();
    for old in moved {
        let thing = tree.remove(&old).unwrap();
        let below = old.strip_prefix(from).unwrap();
        let new = if below.as_os_str().is_empty() { to.to_owned() } else { to.join(below) };
        tree.insert(new, thing);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applying_what_is_told_leads_to_what_is_there(steps in prop::collection::vec(step(), 1..60)) {
        let mut model =
            Model { tree: Tree::new(), reader: Tree::new(), coalescer: coalescer(), contents: 0 };
        for step in steps {
            model.step(step);
        }
        model.deliver();
    }
}
