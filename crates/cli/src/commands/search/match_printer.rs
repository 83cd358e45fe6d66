//! Makes the text of matches as ripgrep prints it: `path:number:text` for a line with a match, and `path-number-text`
//! for a line of context around a match. The caller writes the text to stdout.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use client::{FoundFile, FoundLine};

use crate::terminal_text::readable;

const PATH_COLOUR: &[u8] = b"\x1b[35m";
const NUMBER_COLOUR: &[u8] = b"\x1b[32m";
const MATCH_COLOUR: &[u8] = b"\x1b[1;31m";
const DEFAULT_COLOUR: &[u8] = b"\x1b[0m";

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

/// Makes the text of the matches below one searched path.
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
    /// Lines without a match, which are printed only if a match follows within [`ContextLines::before`] lines.
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
            self.add_coloured(&mut out, PATH_COLOUR, path.as_os_str().as_bytes());
            out.push(b'\n');
            return out;
        }
        let mut printed = self.files.remove(&path).unwrap_or_default();
        for line in &file.lines {
            self.add_line_if_wanted(&mut out, &path, line, &mut printed);
        }
        if self.context.before > 0 || self.context.after > 0 {
            self.files.insert(path, printed);
        }
        out
    }

    /// Adds a line if the user wants it. The server is asked for equally many lines before and after a match, so it
    /// may send more lines than the user wants. A line that may belong to a later match is held back: how far it is
    /// from that match is known only when the match comes.
    fn add_line_if_wanted(&mut self, out: &mut Vec<u8>, path: &Path, line: &FoundLine, file: &mut PrintedFile) {
        if !self.may_match(line) {
            let is_after_match = file.last_match.is_some_and(|at| line.number <= at + u64::from(self.context.after));
            if is_after_match {
                self.add_line(out, path, line);
            } else {
                file.held.push(line.clone());
            }
            return;
        }
        for held in std::mem::take(&mut file.held) {
            if held.number + u64::from(self.context.before) >= line.number {
                self.add_line(out, path, &held);
            }
        }
        file.last_match = Some(line.number);
        self.add_line(out, path, line);
    }

    /// Whether the line is or may be one with a match. All matches of a line can be beyond its cut, and the server then
    /// sends none of them: such a line is shown as a match, because a match must never be left out.
    fn may_match(&self, line: &FoundLine) -> bool {
        let has_context = self.context.before > 0 || self.context.after > 0;
        !line.matches.is_empty() || line.cut || !has_context
    }

    /// Adds a line, and before it a separator if lines are missing since the one that was added last.
    fn add_line(&mut self, out: &mut Vec<u8>, path: &Path, line: &FoundLine) {
        let has_context = self.context.before > 0 || self.context.after > 0;
        let is_next_line = self.last.as_ref().is_none_or(|(last, number)| last == path && number + 1 == line.number);
        if has_context && !is_next_line {
            out.extend_from_slice(b"--\n");
        }
        self.last = Some((path.to_owned(), line.number));
        let mark: &[u8] = if self.may_match(line) { b":" } else { b"-" };
        self.add_coloured(out, PATH_COLOUR, path.as_os_str().as_bytes());
        out.extend_from_slice(mark);
        self.add_coloured(out, NUMBER_COLOUR, line.number.to_string().as_bytes());
        out.extend_from_slice(mark);
        self.add_text(out, line);
        out.push(b'\n');
    }

    /// Adds the text of a line, with its matches in colour.
    fn add_text(&self, out: &mut Vec<u8>, line: &FoundLine) {
        let bytes = line.raw.as_ref().map_or(line.text.as_bytes(), |raw| &raw.0);
        // On a terminal, the CR of a line that ends with CR LF is not shown.
        let bytes = bytes.strip_suffix(b"\r").filter(|_| self.style.is_terminal).unwrap_or(bytes);
        let mut shown = 0;
        for range in &line.matches {
            let (start, end) = (range.start as usize, range.end as usize);
            if let (Some(before), Some(matched)) = (bytes.get(shown..start), bytes.get(start..end)) {
                self.add_plain(out, before);
                self.add_coloured(out, MATCH_COLOUR, matched);
                shown = end;
            }
        }
        self.add_plain(out, bytes.get(shown..).unwrap_or_default());
    }

    fn add_coloured(&self, out: &mut Vec<u8>, colour: &[u8], bytes: &[u8]) {
        if !self.style.has_colours {
            return self.add_plain(out, bytes);
        }
        out.extend_from_slice(colour);
        self.add_plain(out, bytes);
        out.extend_from_slice(DEFAULT_COLOUR);
    }

    /// Adds text without colours. On a terminal, escape sequences become visible; tabs stay.
    fn add_plain(&self, out: &mut Vec<u8>, bytes: &[u8]) {
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
        let mut printer = MatchPrinter::new(Path::new("/r"), Path::new("src"), context, style);
        let file = FoundFile { path: "file:///r/a".parse().unwrap(), lines };
        String::from_utf8(printer.render(&file)).unwrap()
    }

    #[test]
    fn on_a_terminal_matches_are_coloured_and_escapes_visible_and_elsewhere_lines_are_plain() {
        let shown = render(ContextLines::default(), true, vec![line(7, "a\x1bb\tc\u{9b}", &[(2, 3)])]);
        let colours = "\x1b[35msrc/a\x1b[0m:\x1b[32m7\x1b[0m:";
        assert_eq!(shown, format!("{colours}a\\u{{1b}}\x1b[1;31mb\x1b[0m\tc\\u{{9b}}\n"));
        assert_eq!(render(ContextLines::default(), false, vec![line(7, "abc", &[(1, 2)])]), "src/a:7:abc\n");
    }

    #[test]
    fn a_line_whose_matches_are_all_beyond_its_cut_is_printed() {
        let cut = FoundLine { cut: true, ..line(3, "long", &[]) };
        assert_eq!(render(ContextLines::default(), false, vec![cut.clone()]), "src/a:3:long\n");
        let one_after = ContextLines { before: 0, after: 1 };
        let lines = vec![line(1, "a", &[]), cut, line(4, "b", &[]), line(5, "c", &[])];
        assert_eq!(render(one_after, false, lines), "src/a:3:long\nsrc/a-4-b\n");
    }

    #[test]
    fn only_the_wanted_lines_of_context_are_printed() {
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
