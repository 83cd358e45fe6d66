//! Refuses names of files and modules that say nothing. A module called `utils` collects code without a common
//! concern, and a file called `mod.rs` does not say which module it is: the file of a module is `foo.rs`, beside the
//! folder `foo`.

use super::complaint::Complaint;
use super::project::{File, Project};
use super::rust_source;

/// Words that do not say what a file or module is about.
const EMPTY_WORDS: &[&str] = &["common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"];

/// Checks the names of files, folders and modules of Rust code.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    project.rust_files().flat_map(|file| path_complaints(file).chain(module_complaints(file))).collect()
}

fn path_complaints(file: &File) -> impl Iterator<Item = Complaint> {
    let parts = file.path.trim_end_matches(".rs").split('/');
    let empty = parts.filter_map(empty_word).map(|word| Complaint::about(&file.path, advice(word)));
    let named_by_folder = file.path.strip_suffix("/mod.rs");
    empty.chain(named_by_folder.map(|folder| Complaint::about(&file.path, format!("call it `{folder}.rs`"))))
}

fn module_complaints(file: &File) -> impl Iterator<Item = Complaint> {
    rust_source::lines(file).into_iter().filter_map(|line| {
        let body = line.code.trim_end().strip_suffix('{')?;
        let module = body.split_whitespace().skip_while(|word| *word != "mod").nth(1)?;
        Some(Complaint::at(&file.path, line.number, advice(empty_word(module)?)))
    })
}

fn empty_word(name: &str) -> Option<&str> {
    name.split(['_', '-']).find(|word| EMPTY_WORDS.contains(word))
}

fn advice(word: &str) -> String {
    format!("`{word}` does not say what is in it; name the concern")
}

#[cfg(test)]
mod tests {
    use super::super::project::made_up::files;
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        check(&files(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn empty_names_are_refused() {
        assert_eq!(
            complaints("crates/a/src/utils.rs", ""),
            ["crates/a/src/utils.rs: `utils` does not say what is in it; name the concern"]
        );
        for path in ["crates/a/tests/common/start.rs", "crates/a/src/process_manager.rs", "crates/a-util/src/lib.rs"]
        {
            assert_eq!(complaints(path, "").len(), 1, "{path}");
        }
        assert_eq!(
            complaints("crates/a/src/lib.rs", "\npub mod helpers {\n}\n"),
            ["crates/a/src/lib.rs:2: `helpers` does not say what is in it; name the concern"]
        );
    }

    #[test]
    fn a_file_called_mod_rs_is_refused() {
        assert_eq!(
            complaints("crates/a/src/watch/mod.rs", ""),
            ["crates/a/src/watch/mod.rs: call it `crates/a/src/watch.rs`"]
        );
        assert_eq!(complaints("crates/a/src/mod_tree.rs", ""), [""; 0]);
    }

    #[test]
    fn declarations_comments_variables_functions_and_longer_words_are_accepted() {
        for text in ["mod utils;", "// mod utils {", "let manager = 1;", "fn helper() {"] {
            assert_eq!(complaints("crates/a/src/lib.rs", text), [""; 0], "{text}");
        }
        assert_eq!(complaints("crates/a/src/utility_bill.rs", ""), [""; 0]);
    }
}
