//! Refuses doc comments of one or two words: they repeat the name. A doc comment says what name and type cannot, such
//! as unit, range, default, and what happens at the edge. An item whose name says everything needs no doc comment.

use super::complaint::Complaint;
use super::project::{File, Project};

const FEWEST_WORDS: usize = 3;

/// Checks every Rust file, tests included.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    project.rust_files().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Complaint> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut complaints = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some((marker, _)) = doc_line(lines[at]) else {
            at += 1;
            continue;
        };
        let same = lines[at..].iter().map_while(|line| doc_line(line).filter(|(other, _)| *other == marker));
        let block: Vec<&str> = same.map(|(_, text)| text).collect();
        let words = block.iter().flat_map(|text| text.split_whitespace());
        if words.filter(|word| word.contains(char::is_alphanumeric)).count() < FEWEST_WORDS {
            let message =
                format!("\"{}\" says too little; say what the name cannot, or remove it", block.join(" ").trim());
            complaints.push(Complaint::at(&file.path, at + 1, message));
        }
        at += block.len();
    }
    complaints
}

/// The marker and the text of a line that is a doc comment.
fn doc_line(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    let text_after = |marker: &'static str| line.strip_prefix(marker).map(|text| (marker, text));
    // Four slashes are an ordinary comment.
    text_after("//!").or_else(|| text_after("///").filter(|(_, text)| !text.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::super::project::made_up::files;
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        check(&files(&[("a.rs", text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn one_or_two_words_are_refused() {
        assert_eq!(
            complaints("struct A {\n    /// Group id.\n    gid: u32,\n}"),
            ["a.rs:2: \"Group id.\" says too little; say what the name cannot, or remove it"]
        );
        for text in
            ["//! Signals.\n\nfn a() {}", "///\n", "/// A -\n/// b.\nfn a() {}", "//! Signals.\n/// What a does."]
        {
            assert_eq!(complaints(text).len(), 1, "{text}");
        }
        assert_eq!(complaints("/// A.\nstruct A;\n/// B.\nstruct B;").len(), 2);
    }

    #[test]
    fn the_words_of_a_whole_block_count_and_ordinary_comments_are_not_checked() {
        for text in [
            "/// Group id of the file.",
            "/// The size of the file in bytes, without\n/// holes.",
            "/// Sizes.\n///\n/// In bytes.",
            "// Group id.",
            "//// Group id.",
            "fn a() {} /// Id.",
        ] {
            assert_eq!(complaints(text), [""; 0], "{text}");
        }
    }
}
