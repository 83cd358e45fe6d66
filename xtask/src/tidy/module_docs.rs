//! Requires that every module starts with a `//!` comment, which says what the module is for.

use super::complaint::Complaint;
use super::project::Project;

/// Checks the sources of every crate.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    let silent = project.sources().filter(|file| !file.text.starts_with("//! "));
    silent
        .map(|file| Complaint::at(&file.path, 1, "start with a `//!` comment that says what the module is for"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::project::made_up::{files, member};
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        let project = Project { members: vec![member("spawn", vec![])], ..files(&[(path, text)]) };
        check(&project).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_module_must_start_with_a_doc_comment() {
        assert_eq!(complaints("crates/spawn/src/a.rs", "//! Signals.\nfn a() {}\n"), [""; 0]);
        for text in ["", "fn a() {}\n//! Signals.", "// Signals.\n", "/// Signals.\n", "//!\n"] {
            assert_eq!(
                complaints("crates/spawn/src/a.rs", text),
                ["crates/spawn/src/a.rs:1: start with a `//!` comment that says what the module is for"],
                "{text:?}"
            );
        }
    }

    #[test]
    fn files_outside_src_need_no_doc_comment() {
        assert_eq!(complaints("crates/spawn/tests/a.rs", ""), [""; 0]);
    }
}
