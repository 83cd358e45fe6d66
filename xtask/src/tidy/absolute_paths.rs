//! Refuses paths that exist on one machine only: a home directory or a checkout.

use super::complaint::Complaint;
use super::project::{File, Project};

/// Personal folders below `/`. The number says how many further folders a path must name to be personal: one below
/// `home`, none below the others.
const PERSONAL: &[(&str, usize)] = &[("root", 0), ("home", 1), ("work", 0)];

/// Checks every file of the project.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    project.files.iter().flat_map(check_file).collect()
}

fn check_file(file: &File) -> impl Iterator<Item = Complaint> {
    file.text.lines().zip(1..).filter_map(|(line, number)| {
        let path = personal_path(line)?;
        Some(Complaint::at(&file.path, number, format!("`{path}` exists on one machine only")))
    })
}

fn personal_path(line: &str) -> Option<String> {
    PERSONAL.iter().find_map(|(folder, below)| {
        let start = format!("/{folder}/");
        line.match_indices(&start).find_map(|(at, _)| {
            // An absolute path comes after a quote, a space, an opening bracket or the `//` of a URI.
            let is_relative = line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-~}>)]*".contains(c));
            let more: Vec<&str> = line[at + start.len()..].split('/').take(*below).collect();
            let is_name = |part: &&str| !part.is_empty() && !part.contains(char::is_whitespace);
            let is_whole = line[at + start.len()..].matches('/').count() >= *below && more.iter().all(is_name);
            (!is_relative && is_whole).then(|| format!("{start}{}", more.join("/")))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::project::made_up::files;
    use super::*;

    /// Made from parts, because tidy checks this file too.
    fn path_below(folder: &str, rest: &str) -> String {
        format!("/{folder}/{rest}")
    }

    fn complaints(text: &str) -> Vec<String> {
        check(&files(&[("README.md", text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn personal_folders_are_refused() {
        assert_eq!(
            complaints(&format!("fine\ncd {}", path_below("home", "ada/project"))),
            [format!("README.md:2: `{}` exists on one machine only", path_below("home", "ada"))]
        );
        for text in [
            path_below("root", ".cargo"),
            format!("\"{}\"", path_below("work", "main")),
            format!("file://{}", path_below("root", "x")),
            format!("({})", path_below("home", "ada/x")),
        ] {
            assert_eq!(complaints(&text).len(), 1, "{text}");
        }
    }

    #[test]
    fn other_paths_are_accepted() {
        for text in [
            "/usr/bin/true".to_owned(),
            "/home/".to_owned(),
            "the folders /home and /root".to_owned(),
            format!("~{}", path_below("work", "main")),
            format!("$HOME{}", path_below("work", "main")),
            format!("{{dir}}{}", path_below("work", "main")),
        ] {
            assert_eq!(complaints(&text), [""; 0], "{text}");
        }
    }
}
