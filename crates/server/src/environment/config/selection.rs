//! Selects the keys of a TOML document that a client asks for.

use toml::{Table, Value};

/// Sorted key paths. No path begins with another path.
pub(super) struct Selection<'a>(Vec<&'a [String]>);

impl<'a> Selection<'a> {
    /// Drops paths that begin with another path, because the shorter path selects their values already. No path may
    /// be empty.
    pub(super) fn new(paths: &'a [Vec<String>]) -> Self {
        let mut sorted: Vec<&[String]> = paths.iter().map(Vec::as_slice).collect();
        sorted.sort_unstable();
        // In sorted order, a path comes directly before the paths that begin with it.
        sorted.dedup_by(|later, earlier| later.starts_with(earlier));
        Self(sorted)
    }

    /// The selected part of a document. If a path leads through a value that is not a table, the whole value is
    /// selected. If a path leads through a table without the next key, an empty table is selected. The client merges
    /// the documents of several files, and needs both: the whole value replaces what a file with lower precedence has
    /// under the same key, and even an empty table replaces a value there that is not a table.
    pub(super) fn select_from(&self, document: &Table) -> Table {
        part(document, &self.0, 0)
    }
}

/// The part of a table that `paths` select. All paths have the same first `depth` keys, which lead to this table. The recursion is no deeper
/// than the document, however long the paths are.
fn part(table: &Table, paths: &[&[String]], depth: usize) -> Table {
    let mut selected = Table::new();
    for (key, value) in table {
        let from = paths.partition_point(|path| path[depth].as_str() < key.as_str());
        let count = paths[from..].partition_point(|path| path[depth] == *key);
        let below = &paths[from..from + count];
        let Some(first) = below.first() else { continue };
        let value = match value {
            Value::Table(table) if first.len() > depth + 1 => Value::Table(part(table, below, depth + 1)),
            whole => whole.clone(),
        };
        selected.insert(key.clone(), value);
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(document: &str, paths: &[&[&str]]) -> String {
        let paths: Vec<Vec<String>> =
            paths.iter().map(|path| path.iter().map(ToString::to_string).collect()).collect();
        toml::to_string(&Selection::new(&paths).select_from(&document.parse().unwrap())).unwrap()
    }

    const DOCUMENT: &str = "model = 'm'\nsecret = 's'\nwhen = 2026-01-02T03:04:05Z\nnumber = 0xff\nlist = [1, 2]\n\
        inline = { x = 1 }\n[a.b]\nc = 1\nd = [1, 'x']\n[a.e]\nf = 1.5\n[['a.b']]\ng = true\n";

    #[test]
    fn only_selected_keys_are_returned() {
        for (paths, expected) in [
            (&[&["model"][..]][..], "model = \"m\"\n"),
            (&[&["when"], &["number"]], "number = 255\nwhen = 2026-01-02T03:04:05Z\n"),
            (&[&["a", "b", "d"], &["a", "e"]], "[a.b]\nd = [1, \"x\"]\n\n[a.e]\nf = 1.5\n"),
            (&[&["inline", "x"]], "[inline]\nx = 1\n"),
            (&[&["a.b"]], "[[\"a.b\"]]\ng = true\n"),
            (&[], ""),
            (&[&["nothing"], &["nothing", "below"]], ""),
        ] {
            assert_eq!(select(DOCUMENT, paths), expected, "{paths:?}");
        }
    }

    #[test]
    fn a_value_on_the_path_that_is_not_a_table_is_selected_as_a_whole() {
        for (paths, expected) in [
            (&[&["model", "x"][..]][..], "model = \"m\"\n"),
            (&[&["list", "0"]], "list = [1, 2]\n"),
            (&[&["a.b", "g"]], "[[\"a.b\"]]\ng = true\n"),
            (&[&["a", "b", "c", "d"]], "[a.b]\nc = 1\n"),
        ] {
            assert_eq!(select(DOCUMENT, paths), expected, "{paths:?}");
        }
    }

    #[test]
    fn a_table_without_the_next_key_of_the_path_is_selected_as_an_empty_table() {
        assert_eq!(select(DOCUMENT, &[&["a", "nothing"]]), "[a]\n");
        assert_eq!(select(DOCUMENT, &[&["a", "b", "nothing"], &["a", "e", "f"]]), "[a.b]\n\n[a.e]\nf = 1.5\n");
    }

    #[test]
    fn a_path_below_another_selected_path_changes_nothing() {
        let whole = select(DOCUMENT, &[&["a"]]);
        assert_eq!(select(DOCUMENT, &[&["a", "b"], &["a"], &["a", "b", "c"], &["a"]]), whole);
        let one = ["x".to_owned()];
        let paths = [vec!["x".to_owned(), "y".to_owned()], one.to_vec(), one.to_vec()];
        assert_eq!(Selection::new(&paths).0, [&one]);
    }

    #[test]
    fn a_very_long_path_does_not_overflow_the_stack() {
        let long = vec!["a".to_owned(); 1_000_000];
        assert_eq!(Selection::new(&[long]).select_from(&"a.a = 1".parse().unwrap()), "a.a = 1".parse().unwrap());
    }
}
