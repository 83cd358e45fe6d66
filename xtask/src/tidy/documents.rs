//! Requires the documents that a user, an operator or a contributor looks for.

use super::complaint::Complaint;
use super::project::Project;

const DOCUMENTS: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "docs/benchmarks.md",
    "docs/compatibility.md",
    "docs/limits.md",
    "docs/protocol.md",
];

/// Checks that every document exists and is not empty.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    let says_something = |path: &str| project.file(path).is_some_and(|file| !file.text.trim().is_empty());
    let missing = DOCUMENTS.iter().filter(|path| !says_something(path));
    missing.map(|path| Complaint::about(*path, "missing or empty; write it")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::project::made_up::files;
    use super::*;

    #[test]
    fn a_missing_and_an_empty_document_are_named() {
        let mut all: Vec<(&str, &str)> = DOCUMENTS.iter().map(|path| (*path, "text")).collect();
        assert_eq!(check(&files(&all)), []);
        all[0].1 = "\n";
        all.pop();
        let complaints: Vec<String> = check(&files(&all)).iter().map(ToString::to_string).collect();
        assert_eq!(
            complaints,
            ["ARCHITECTURE.md: missing or empty; write it", "docs/protocol.md: missing or empty; write it"]
        );
    }
}
