//! Refuses sleeps in tests: a test that sleeps to wait for something is slow, and fails on a loaded machine. A
//! comment `// sleep: <reason>` allows a sleep, for example if the passing of time is itself tested.

use super::complaint::Complaint;
use super::project::{File, Project};
use super::rust_source::{self, CodePart, SourceLine};

const MARKER: &str = "// sleep: ";

/// Checks all tests. Sleeps of other programs are in string literals, which are not checked.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    project.rust_files().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Complaint> {
    let lines = rust_source::lines(file);
    let unexplained = (0..lines.len()).filter(|at| sleeps_in_test(&lines[*at]) && !is_explained(&lines, *at));
    unexplained
        .map(|at| {
            let message = format!("wait for an event instead, or give a reason in a comment `{MARKER}<reason>`");
            Complaint::at(&file.path, lines[at].number, message)
        })
        .collect()
}

fn sleeps_in_test(line: &SourceLine<'_>) -> bool {
    let mut calls = line.code.match_indices("sleep(");
    let is_own_word = |at: usize| !line.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    line.part == CodePart::Test && calls.any(|(at, _)| is_own_word(at))
}

/// Whether a comment on the line, or right above it, gives a reason.
fn is_explained(lines: &[SourceLine<'_>], at: usize) -> bool {
    let above = lines[..at].iter().rev().take_while(|line| line.raw.trim_start().starts_with("//"));
    std::iter::once(&lines[at])
        .chain(above)
        .any(|line| line.raw.split_once(MARKER).is_some_and(|(_, reason)| !reason.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::super::project::made_up::files;
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        check(&files(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_sleep_in_a_test_needs_a_reason() {
        assert_eq!(
            complaints("crates/a/tests/b.rs", "fn a() {\n    sleep(SECOND).await;\n}"),
            ["crates/a/tests/b.rs:2: wait for an event instead, or give a reason in a comment `// sleep: <reason>`"]
        );
        for text in [
            "#[cfg(test)]\nmod tests {\n    std::thread::sleep(x);\n}",
            "#[cfg(test)]\nmod tests {\n    // sleep: \n    tokio::time::sleep(x);\n}",
            "#[cfg(test)]\nmod tests {\n    // sleep: too far away\n\n    sleep(x);\n}",
        ] {
            assert_eq!(complaints("crates/a/src/b.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_reason_on_the_line_or_above_allows_the_sleep() {
        for text in [
            "sleep(x); // sleep: the keep-alive is what is tested",
            "// sleep: the keep-alive is\n// what is tested\nsleep(x);",
            "spawn(\"perl -e 'sleep(5)'\")",
            "fn can_sleep() { oversleep(x); let sleep = 1; }",
        ] {
            assert_eq!(complaints("crates/a/tests/b.rs", text), [""; 0], "{text}");
        }
    }

    #[test]
    fn the_product_may_sleep() {
        assert_eq!(complaints("crates/a/src/b.rs", "sleep(x);"), [""; 0]);
    }
}
