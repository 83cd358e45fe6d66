//! Checks links in Markdown files to files and headings of the project. Links to the web are not followed, because a
//! check must not fail when a web server does.

use super::complaint::Complaint;
use super::project::{File, Project};

/// Checks every Markdown file.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    let texts = project.files.iter().filter(|file| file.path.ends_with(".md"));
    texts.flat_map(|file| check_file(project, file)).collect()
}

fn check_file(project: &Project, file: &File) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (number, line) in prose(&file.text) {
        for link in links(&line) {
            if let Some(objection) = objection(project, file, link) {
                complaints.push(Complaint::at(&file.path, number, objection));
            }
        }
    }
    complaints
}

fn objection(project: &Project, file: &File, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading)));
    let target = if path.is_empty() { file.path.clone() } else { resolved(&file.path, path) };
    let folder = format!("{target}/");
    if !project.files.iter().any(|file| file.path == target || file.path.starts_with(&folder)) {
        return Some(format!("`{link}` leads nowhere"));
    }
    let text = &project.file(&target)?.text;
    let is_there = |heading: &str| headings(text).any(|known| known == heading);
    (target.ends_with(".md") && !heading.is_none_or(is_there))
        .then(|| format!("`{link}` leads to no heading of {target}"))
}

/// The lines outside code blocks, each with its number and without code spans.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut in_code = false;
    let mut prose = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            let outside_spans: Vec<&str> = line.split('`').step_by(2).collect();
            prose.push((number, outside_spans.concat()));
        }
    }
    prose
}

/// The targets of `[text](target)` and `[label]: target`.
fn links(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|after| after.split([')', ' ']).next());
    let defined = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    let defined = defined.and_then(|(_, target)| target.split_whitespace().next());
    inline.chain(defined).collect()
}

/// `link` as seen from the file at `from`, relative to the root of the project.
fn resolved(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    if link.starts_with('/') {
        parts.clear();
    }
    for part in link.split('/') {
        match part {
            "" | "." => {}
            // A link that leaves the project resolves to `..`, which no file is called.
            ".." => {
                if parts.pop().is_none() {
                    return "..".to_owned();
                }
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The headings of a Markdown file, as the anchors that code hosting sites make of them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let mut in_code = false;
    text.lines().filter_map(move |line| {
        in_code ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        let is_heading = !in_code && title.len() < line.len() && title.starts_with(' ');
        is_heading.then(|| anchor(title.trim()))
    })
}

fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::super::project::made_up::files;
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        let project = files(&[
            ("README.md", "# Title\n"),
            ("crates/a/src/lib.rs", ""),
            ("docs/guide.md", text),
            ("docs/protocol.md", "# The wire\n```\n# no heading\n```\n## `process/start` (ours)\n"),
        ]);
        check(&project).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn good_links_pass() {
        for text in [
            "[a](protocol.md) and [b](./protocol.md#the-wire), [c](../README.md \"title\")",
            "[a](protocol.md#processstart-ours)",
            "# Here\n[a](#here)",
            "[a](../crates/a) [b](../crates/a/)",
            "[a](/README.md)",
            "[a](https://example.org/none.md) [b](mailto:a@example.org)",
            "[a]: protocol.md",
            "`[a](none.md)`\n```\n[a](none.md)\n```\n",
        ] {
            assert_eq!(complaints(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn bad_links_are_named() {
        assert_eq!(complaints("\nsee [a](none.md)"), ["docs/guide.md:2: `none.md` leads nowhere"]);
        assert_eq!(
            complaints("[a](protocol.md#no-heading)"),
            ["docs/guide.md:1: `protocol.md#no-heading` leads to no heading of docs/protocol.md"]
        );
        for text in
            ["[a](README.md)", "[a]: none.md", "[a](#here)", "[a](../../README.md)", "[a](protocol.md) [b](x)"]
        {
            assert_eq!(complaints(text).len(), 1, "{text}");
        }
    }
}
