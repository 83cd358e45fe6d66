//! Refuses long files, because they have more than one concern. Lines of tests do not count: tests may list as many
//! cases as they like.

use super::complaint::Complaint;
use super::project::Project;
use super::rust_source::{self, CodePart};

/// About 150 lines are comfortable; this is the hard limit.
const MOST_LINES: usize = 600;

/// Counts the lines of every Rust file, without its tests.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    let counted = project.rust_files().map(|file| {
        let lines = rust_source::lines(file);
        (file, lines.iter().filter(|line| line.part == CodePart::Product).count())
    });
    let long = counted.filter(|(_, count)| *count > MOST_LINES);
    long.map(|(file, count)| {
        let message = format!("{count} lines without its tests, {MOST_LINES} are the limit; move a concern out");
        Complaint::about(&file.path, message)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::project::made_up::files;
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        check(&files(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn one_line_over_the_limit_is_refused() {
        assert_eq!(complaints("a.rs", &"fn a() {}\n".repeat(MOST_LINES)), [""; 0]);
        assert_eq!(
            complaints("a.rs", &"fn a() {}\n".repeat(MOST_LINES + 1)),
            ["a.rs: 601 lines without its tests, 600 are the limit; move a concern out"]
        );
    }

    #[test]
    fn tests_do_not_count() {
        let long = "fn a() {}\n".repeat(MOST_LINES + 1);
        assert_eq!(complaints("crates/a/tests/b.rs", &long), [""; 0]);
        assert_eq!(complaints("a.rs", &format!("fn b() {{}}\n#[cfg(test)]\nmod tests {{\n{long}}}\n")), [""; 0]);
        assert_eq!(complaints("a.rs", &format!("#[cfg(test)]\nmod tests {{\n}}\n{long}")).len(), 1);
    }
}
