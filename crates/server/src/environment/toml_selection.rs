//! A part of a TOML document: only the keys that somebody asked for.

use toml::{Table, Value};

/// Key paths, none of which begins with another.
pub(super) struct Selection<'a>(Vec<&'a [String]>);

/// Why a document cannot be read, and where.
#[derive(Debug)]
pub(crate) struct Unparsable {
    pub(crate) line: usize,
    pub(crate) problem: String,
}

impl<'a> Selection<'a> {
    /// What `paths` select. One that is part of another adds nothing, so that what is copied is never more than the document.
    pub(super) fn new(paths: &'a [Vec<String>]) -> Self {
        let mut sorted: Vec<&[String]> = paths.iter().map(Vec::as_slice).collect();
        sorted.sort_unstable();
        // Sorted, a path stands right before those that begin with it.
        sorted.dedup_by(|later, earlier| later.starts_with(earlier));
        Self(sorted)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The selected part of a document, as a document.
    pub(super) fn of(&self, document: &str) -> Result<String, Unparsable> {
        let table: Table = document.parse().map_err(|error: toml::de::Error| {
            let at = error.span().map_or(0, |span| span.start).min(document.len());
            let line = document.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1;
            Unparsable { line, problem: error.message().to_owned() }
        })?;
        let mut selected = Table::new();
        for path in &self.0 {
            if let Some(value) = value_at(&table, path) {
                place(&mut selected, path, value.clone());
            }
        }
        toml::to_string(&selected).map_err(|error| Unparsable { line: 1, problem: error.to_string() })
    }
}

fn value_at<'t>(table: &'t Table, path: &[String]) -> Option<&'t Value> {
    let (last, above) = path.split_last()?;
    above.iter().try_fold(table, |table, key| table.get(key)?.as_table())?.get(last)
}

fn place(into: &mut Table, path: &[String], value: Value) {
    let Some((key, below)) = path.split_first() else { return };
    if below.is_empty() {
        into.insert(key.clone(), value);
    } else if let Value::Table(table) = into.entry(key.clone()).or_insert_with(|| Value::Table(Table::new())) {
        place(table, below, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(document: &str, paths: &[&[&str]]) -> String {
        let paths: Vec<Vec<String>> =
            paths.iter().map(|path| path.iter().map(ToString::to_string).collect()).collect();
        Selection::new(&paths).of(document).unwrap()
    }

    const DOCUMENT: &str = "model = 'm'\nsecret = 's'\nwhen = 2026-01-02T03:04:05Z\n\
        [a.b]\nc = 1\nd = [1, 'x']\n[a.e]\nf = 1.5\n[['a.b']]\ng = true\n";

    #[test]
    fn only_what_was_asked_for_is_there() {
        assert_eq!(select(DOCUMENT, &[&["model"]]), "model = \"m\"\n");
        assert_eq!(select(DOCUMENT, &[&["when"]]), "when = 2026-01-02T03:04:05Z\n");
        assert_eq!(select(DOCUMENT, &[&["a", "b", "d"], &["a", "e"]]), "[a.b]\nd = [1, \"x\"]\n\n[a.e]\nf = 1.5\n");
        assert_eq!(select(DOCUMENT, &[&["a.b"]]), "[[\"a.b\"]]\ng = true\n", "a key with a dot is one key");
    }

    #[test]
    fn what_is_not_there_is_left_out() {
        assert_eq!(select(DOCUMENT, &[&["nothing"], &["model", "below"], &["a", "b", "c", "d"], &["a.b", "g"]]), "");
    }

    #[test]
    fn a_path_inside_another_changes_nothing() {
        let whole = select(DOCUMENT, &[&["a"]]);
        assert_eq!(select(DOCUMENT, &[&["a", "b"], &["a"], &["a", "b", "c"], &["a"]]), whole);
        let one = ["x".to_owned()];
        let paths = [vec!["x".to_owned(), "y".to_owned()], one.to_vec(), one.to_vec()];
        assert_eq!(Selection::new(&paths).0, [&one]);
    }

    #[test]
    fn a_broken_document_says_where() {
        let why = Selection::new(&[vec!["a".into()]]).of("a = 1\n\nb = = 2\n").unwrap_err();
        assert_eq!(why.line, 3, "{}", why.problem);
        assert!(!why.problem.is_empty());
    }

    #[test]
    fn a_document_that_nests_without_end_is_refused() {
        let deep = format!("a = {}", "[".repeat(100_000));
        assert!(Selection::new(&[vec!["a".into()]]).of(&deep).is_err());
    }
}
