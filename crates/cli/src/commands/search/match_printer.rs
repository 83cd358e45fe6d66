//! Prints matches as ripgrep does: `path:number:text` for a line with a match, and `path-number-text` for a line around it.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use client::{FoundFile, FoundLine};

use crate::terminal_text::readable;

const PATH: &[u8] = b"\x1b[35m";
const NUMBER: &[u8] = b"\x1b[32m";
const MATCH: &[u8] = b"\x1b[1;31m";
const PLAIN: &[u8] = b"\x1b[0m";

/// How many lines are printed around each match.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ContextLines {
    pub(super) before: u32,
    pub(super) after: u32,
}

/// How matches are printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatchStyle {
    /// Whether stdout is a terminal, so that escape sequences have to become visible.
    pub(super) is_terminal: bool,
    pub(super) has_colours: bool,
    /// Print the paths of files and none of their lines.
    pub(super) names_only: bool,
}

/// Prints the matches below one searched path.
pub(super) struct MatchPrinter {
    /// The searched path on its machine.
    root: PathBuf,
    /// The same path as it was typed.
    typed: PathBuf,
    context: ContextLines,
    style: MatchStyle,
    /// Files that were printed in part. The server may send a file in parts, with parts of other files in between.
    files: HashMap<PathBuf, PrintedFile>,
    /// File and number of the line that was printed last.
    last: Option<(PathBuf, u64)>,
}

/// A file of which some lines were printed.
#[derive(Default)]
struct PrintedFile {
    /// The number of the last line with a match.
    last_match: Option<u64>,
    /// Lines that are printed if a match follows soon enough.
    held: Vec<FoundLine>,
}

impl MatchPrinter {
    pub(super) fn new(root: &Path, typed: &Path, context: ContextLines, style: MatchStyle) -> Self {
        Self { root: root.to_owned(), typed: typed.to_owned(), context, style, files: HashMap::new(), last: None }
    }

    /// The text to print for a file, or a part of one.
    pub(super) fn render(&mut self, file: &FoundFile) -> Vec<u8> {
        let mut out = Vec::new();
        let Ok(native) = file.path.to_native() else { return out };
        let path = super::display_path(&self.root, &self.typed, &native);
        if self.style.names_only || file.lines.is_empty() {
            self.colour(&mut out, PATH, path.as_os_str().as_bytes());
            out.push(b'\n');
            return out;
        }
        let mut printed = self.files.remove(&path).unwrap_or_default();
        for line in &file.lines {
            self.line(&mut out, &path, line, &mut printed);
        }
        if self.context.before > 0 || self.context.after > 0 {
            self.files.insert(path, printed);
        }
        out
    }

    /// Adds a line. The server sends as many lines before a match as after it. Which of the lines before it were asked for is known only when
    /// the match comes.
    fn line(&mut self, out: &mut Vec<u8>, path: &Path, line: &FoundLine, file: &mut PrintedFile) {
        if line.matches.is_empty() {
            let follows = file.last_match.is_some_and(|at| line.number <= at + u64::from(self.context.after));
            if follows {
                self.put(out, path, line);
            } else {
                file.held.push(line.clone());
            }
            return;
        }
        for held in std::mem::take(&mut file.held) {
            if held.number + u64::from(self.context.before) >= line.number {
                self.put(out, path, &held);
            }
        }
        file.last_match = Some(line.number);
        self.put(out, path, line);
    }

    fn put(&mut self, out: &mut Vec<u8>, path: &Path, line: &FoundLine) {
        let has_context = self.context.before > 0 || self.context.after > 0;
        let follows = self.last.as_ref().is_none_or(|(last, number)| last == path && number + 1 == line.number);
        if has_context && !follows {
            out.extend_from_slice(b"--\n");
        }
        self.last = Some((path.to_owned(), line.number));
        let mark: &[u8] = if line.matches.is_empty() { b"-" } else { b":" };
        self.colour(out, PATH, path.as_os_str().as_bytes());
        out.extend_from_slice(mark);
        self.colour(out, NUMBER, line.number.to_string().as_bytes());
        out.extend_from_slice(mark);
        self.text(out, line);
        out.push(b'\n');
    }

    fn text(&self, out: &mut Vec<u8>, line: &FoundLine) {
        let bytes = line.raw.as_ref().map_or(line.text.as_bytes(), |raw| &raw.0);
        // On a terminal, the CR of a line that ends with CR LF is not shown.
        let bytes = bytes.strip_suffix(b"\r").filter(|_| self.style.is_terminal).unwrap_or(bytes);
        let mut shown = 0;
        for range in &line.matches {
            let (start, end) = (range.start as usize, range.end as usize);
            if let (Some(before), Some(matched)) = (bytes.get(shown..start), bytes.get(start..end)) {
                self.plain(out, before);
                self.colour(out, MATCH, matched);
                shown = end;
            }
        }
        self.plain(out, bytes.get(shown..).unwrap_or_default());
    }

    fn colour(&self, out: &mut Vec<u8>, colour: &[u8], bytes: &[u8]) {
        if !self.style.has_colours {
            return self.plain(out, bytes);
        }
        out.extend_from_slice(colour);
        self.plain(out, bytes);
        out.extend_from_slice(PLAIN);
    }

    /// Adds text without colours. On a terminal, escape sequences become visible; tabs stay.
    fn plain(&self, out: &mut Vec<u8>, bytes: &[u8]) {
        if !self.style.is_terminal {
            return out.extend_from_slice(bytes);
        }
        let text = String::from_utf8_lossy(bytes);
        let between_tabs: Vec<String> = text.split('\t').map(readable).collect();
        out.extend(between_tabs.join("\t").into_bytes());
    }
}

#[cfg(test)]
mod tests {
    use client::MatchRange;

    use super::*;

    fn line(number: u64, text: &str, matches: &[(u32, u32)]) -> FoundLine {
        let matches = matches.iter().map(|&(start, end)| MatchRange { start, end }).collect();
        FoundLine { number, offset: 0, text: text.to_owned(), raw: None, matches, cut: false }
    }

    fn render(context: ContextLines, has_colours: bool, lines: Vec<FoundLine>) -> String {
        let style = MatchStyle { is_terminal: has_colours, has_colours, names_only: false };
        let mut shown = MatchPrinter::new(Path::new("/r"), Path::new("src"), context, style);
        let file = FoundFile { path: "file:///r/a".parse().unwrap(), lines };
        String::from_utf8(shown.render(&file)).unwrap()
    }

    #[test]
    fn matches_are_coloured_and_escapes_are_not_passed_on() {
        let shown = render(ContextLines::default(), true, vec![line(7, "a\x1bb\tc\u{9b}", &[(2, 3)])]);
        let colours = "\x1b[35msrc/a\x1b[0m:\x1b[32m7\x1b[0m:";
        assert_eq!(shown, format!("{colours}a\\u{{1b}}\x1b[1;31mb\x1b[0m\tc\\u{{9b}}\n"));
        assert_eq!(render(ContextLines::default(), false, vec![line(7, "abc", &[(1, 2)])]), "src/a:7:abc\n");
    }

    #[test]
    fn context_is_shown_as_far_as_it_was_asked_for() {
        let lines = || {
            vec![
                line(1, "a", &[]),
                line(2, "b", &[]),
                line(3, "x", &[(0, 1)]),
                line(4, "c", &[]),
                line(5, "d", &[]),
                line(8, "e", &[]),
                line(9, "f", &[]),
                line(10, "x", &[(0, 1)]),
            ]
        };
        let one_before = ContextLines { before: 1, after: 0 };
        assert_eq!(render(one_before, false, lines()), "src/a-2-b\nsrc/a:3:x\n--\nsrc/a-9-f\nsrc/a:10:x\n");
        let two_after = ContextLines { before: 0, after: 2 };
        assert_eq!(render(two_after, false, lines()), "src/a:3:x\nsrc/a-4-c\nsrc/a-5-d\n--\nsrc/a:10:x\n");
    }
}
