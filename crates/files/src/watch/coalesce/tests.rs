//! Tests of each rule, and of all rules together: a model of a file system makes random changes, a receiver applies
//! the reported changes, and both must have the same entries after each delivery.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const COLLECT_TIME: Duration = Duration::from_millis(50);

fn coalescer() -> Coalescer {
    Coalescer::new(COLLECT_TIME, 1000)
}

/// Coalesces events and returns the changes as `+created ~modified -removed from>to`. Paths of directories end with a slash.
fn coalesced(events: &[(&str, PathEvent)]) -> String {
    let mut coalescer = coalescer();
    for (path, event) in events {
        let is_directory = path.ends_with('/');
        let path = PathBuf::from(path.trim_end_matches('/'));
        coalescer.push(Instant::now(), path, is_directory, event.clone());
    }
    let (changes, is_overflow) = coalescer.take();
    assert!(!is_overflow);
    changes.iter().map(to_text).collect::<Vec<_>>().join(" ")
}

fn to_text(change: &PathChange) -> String {
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
fn several_events_of_a_path_become_at_most_one_change() {
    use PathEvent::{Created, Listed, Modified, MovedIn, Removed};
    assert_eq!(coalesced(&[("a", Created), ("a", Modified), ("a", Modified)]), "+a");
    assert_eq!(coalesced(&[("a", Modified), ("a", Modified)]), "~a");
    assert_eq!(coalesced(&[("a", Created), ("a", Removed)]), "");
    assert_eq!(coalesced(&[("a", Modified), ("a", Removed)]), "-a");
    assert_eq!(coalesced(&[("a", Removed), ("a", Created)]), "~a");
    assert_eq!(coalesced(&[("a", Removed), ("a", Created), ("a", Removed)]), "-a");
    assert_eq!(coalesced(&[("a", Listed), ("a", Created)]), "+a");
    assert_eq!(coalesced(&[("a", MovedIn), ("a", Removed)]), "-a", "it may have replaced an older file");
    assert_eq!(coalesced(&[("a", Created), ("a", MovedIn), ("a", Removed)]), "");
    assert_eq!(coalesced(&[("a", Modified), ("a", MovedIn)]), "~a");
}

#[test]
fn renames_are_combined_with_earlier_and_later_events() {
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
fn a_file_saved_by_an_editor_is_modified_or_created() {
    use PathEvent::{Created, Modified, Removed};
    let saved_with_backup = [("f~", renamed("f")), ("f", Created), ("f", Modified), ("f~", Removed)];
    assert_eq!(coalesced(&saved_with_backup), "~f -f~");
    let saved_over_modified_file = [("f", Modified), ("t", Created), ("t", Modified), ("f", renamed("t"))];
    assert_eq!(coalesced(&saved_over_modified_file), "~f");
    let saved_over_unknown_file = [("t", Created), ("t", Modified), ("f", renamed("t"))];
    assert_eq!(coalesced(&saved_over_unknown_file), "+f", "no event tells whether f existed before");
}

#[test]
fn changes_of_a_directory_apply_to_everything_below_it() {
    use PathEvent::{Created, Modified, Removed};
    assert_eq!(coalesced(&[("d/", Created), ("d/a", Created), ("d/", Removed)]), "");
    assert_eq!(coalesced(&[("d/a", Created), ("d/b", Removed), ("d-x", Modified), ("d/", Removed)]), "~d-x -d/");
    assert_eq!(coalesced(&[("d/", Removed), ("d/", Created), ("d/a", Created)]), "-d/ +d/ +d/a");
    assert_eq!(coalesced(&[("d/b", renamed("a")), ("d/", Removed)]), "-a -d/");
    assert_eq!(coalesced(&[("a", renamed("d/a")), ("d/", Removed)]), "d/a>a -d/");
    assert_eq!(coalesced(&[("d/a", Created), ("e/", renamed("d")), ("e/a", Modified)]), "+d/a d>e/ ~e/a");
}

#[test]
fn the_first_change_sets_the_time_of_delivery() {
    let mut coalescer = coalescer();
    let start = Instant::now();
    assert_eq!(coalescer.due(), None);
    coalescer.push(start, "a".into(), false, PathEvent::Modified);
    coalescer.push(start + COLLECT_TIME / 2, "a".into(), false, PathEvent::Modified);
    assert_eq!(coalescer.due(), Some(start + COLLECT_TIME));
    assert_eq!(coalescer.take().0.len(), 1);
    assert_eq!(coalescer.due(), None);
}

#[test]
fn too_many_changes_are_an_overflow_and_later_changes_are_reported() {
    let mut coalescer = Coalescer::new(COLLECT_TIME, 10);
    for number in 0..100 {
        coalescer.push(Instant::now(), format!("{number}").into(), false, PathEvent::Created);
    }
    assert_eq!(coalescer.take(), (vec![], true));
    coalescer.push(Instant::now(), "a".into(), false, PathEvent::Created);
    assert_eq!(coalescer.take().0.len(), 1);
}

#[test]
fn the_removal_of_a_listed_entry_is_reported_even_if_its_creation_event_came_late() {
    let mut coalescer = coalescer();
    coalescer.push(Instant::now(), "d/a".into(), false, PathEvent::Listed);
    assert_eq!(coalescer.take().0.len(), 1);
    coalescer.push(Instant::now(), "d/a".into(), false, PathEvent::Created);
    coalescer.push(Instant::now(), "d/a".into(), false, PathEvent::Removed);
    assert_eq!(coalescer.take().0.iter().map(to_text).collect::<Vec<_>>(), ["-d/a"]);
}

/// An entry of the model. The content of a file is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelEntry {
    Directory,
    File(u64),
    /// A file whose change was reported to the receiver. The receiver reads its content after the delivery.
    Unread,
}

type FileTree = BTreeMap<PathBuf, ModelEntry>;

const PATHS: &[&str] = &["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "e", "e/a", "e/b"];

/// A change in the file system of the model, or a delivery to the receiver. The numbers are indexes of [`PATHS`].
#[derive(Clone, Copy, Debug)]
enum ModelStep {
    MakeFile(usize),
    MakeDirectory(usize),
    Write(usize),
    Remove(usize),
    Rename(usize, usize),
    /// A file is moved in from outside of the tree.
    MoveIn(usize),
    Deliver,
}

fn step() -> impl Strategy<Value = ModelStep> {
    let path = || 0..PATHS.len();
    prop_oneof![
        3 => path().prop_map(ModelStep::MakeFile),
        2 => path().prop_map(ModelStep::MakeDirectory),
        2 => path().prop_map(ModelStep::Write),
        3 => path().prop_map(ModelStep::Remove),
        6 => (path(), path()).prop_map(|(from, to)| ModelStep::Rename(from, to)),
        1 => path().prop_map(ModelStep::MoveIn),
        1 => Just(ModelStep::Deliver),
    ]
}

struct CoalescerModel {
    /// The entries of the file system.
    tree: FileTree,
    /// The entries that the receiver knows.
    receiver: FileTree,
    coalescer: Coalescer,
    last_content: u64,
}

impl CoalescerModel {
    fn push_event(&mut self, path: &Path, is_directory: bool, event: PathEvent) {
        self.coalescer.push(Instant::now(), path.to_owned(), is_directory, event);
    }

    fn new_content(&mut self) -> ModelEntry {
        self.last_content += 1;
        ModelEntry::File(self.last_content)
    }

    fn has_parent(&self, path: &Path) -> bool {
        let parent = path.parent().unwrap();
        parent.as_os_str().is_empty() || self.tree.get(parent) == Some(&ModelEntry::Directory)
    }

    fn step(&mut self, step: ModelStep) {
        match step {
            ModelStep::MakeFile(at) | ModelStep::MakeDirectory(at) => {
                let path = Path::new(PATHS[at]);
                if self.tree.contains_key(path) || !self.has_parent(path) {
                    return;
                }
                let is_directory = matches!(step, ModelStep::MakeDirectory(_));
                let item = if is_directory { ModelEntry::Directory } else { self.new_content() };
                self.tree.insert(path.into(), item);
                self.push_event(path, is_directory, PathEvent::Created);
            }
            ModelStep::Write(at) => {
                let path = Path::new(PATHS[at]);
                if let Some(ModelEntry::File(_)) = self.tree.get(path) {
                    let item = self.new_content();
                    self.tree.insert(path.into(), item);
                    self.push_event(path, false, PathEvent::Modified);
                }
            }
            ModelStep::Remove(at) => {
                // Everything below is removed too, without events, as when a directory is moved out of the tree.
                let path = Path::new(PATHS[at]);
                if let Some(item) = self.tree.get(path).copied() {
                    remove(&mut self.tree, path);
                    self.push_event(path, item == ModelEntry::Directory, PathEvent::Removed);
                }
            }
            ModelStep::MoveIn(at) => {
                let path = Path::new(PATHS[at]);
                if self.has_parent(path) && self.tree.get(path) != Some(&ModelEntry::Directory) {
                    let item = self.new_content();
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
        let is_directory = item == ModelEntry::Directory;
        let is_allowed = match self.tree.get(to) {
            None => self.has_parent(to) && !to.starts_with(from),
            Some(ModelEntry::Directory) => false,
            Some(_) => !is_directory && from != to,
        };
        if is_allowed {
            rename(&mut self.tree, from, to);
            self.push_event(to, is_directory, PathEvent::Renamed { from: from.into() });
        }
    }

    /// Applies the changes to the entries of the receiver, which must then equal the tree.
    fn deliver(&mut self) {
        for change in self.coalescer.take().0 {
            match change.kind {
                PathChangeKind::Created | PathChangeKind::Modified if change.is_directory => {
                    self.receiver.insert(change.path, ModelEntry::Directory);
                }
                PathChangeKind::Created | PathChangeKind::Modified => {
                    self.receiver.insert(change.path, ModelEntry::Unread);
                }
                PathChangeKind::Removed => remove(&mut self.receiver, &change.path),
                PathChangeKind::Renamed { from } => {
                    assert!(self.receiver.contains_key(&from), "{from:?} is not known");
                    rename(&mut self.receiver, &from, &change.path);
                }
            }
        }
        for (path, item) in &mut self.receiver {
            if *item == ModelEntry::Unread {
                *item = *self.tree.get(path).expect("a created or modified file exists");
            }
        }
        assert_eq!(self.receiver, self.tree);
    }
}

fn remove(tree: &mut FileTree, path: &Path) {
    tree.retain(|entry, _| !entry.starts_with(path));
}

fn rename(tree: &mut FileTree, from: &Path, to: &Path) {
    remove(tree, to);
    let moved: Vec<PathBuf> = tree.keys().filter(|entry| entry.starts_with(from)).cloned().collect();
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
    fn a_receiver_that_applies_the_changes_knows_the_tree(steps in prop::collection::vec(step(), 1..60)) {
        let mut model =
            CoalescerModel { tree: FileTree::new(), receiver: FileTree::new(), coalescer: coalescer(), last_content: 0 };
        for step in steps {
            model.step(step);
        }
        model.deliver();
    }
}
