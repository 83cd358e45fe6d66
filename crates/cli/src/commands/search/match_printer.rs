//! Lines as ripgrep shows them: `path:number:text`, and `path-number-text` for what stands around a match.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use client::{FoundFile, FoundLine};

use crate::terminal_text::readable;

const PATH: &[u8] = b"\x1b[35m";
const NUMBER: &[u8] = b"\x1b[32m";
const MATCH: &[u8] = b"\x1b[1;31m";
const PLAIN: &[u8] = b"\x1b[0m";

/// Lines around a match.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ContextLines {
    pub(super) before: u32,
    pub(super) after: u32,
}

/// How it looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatchStyle {
    /// Whether a person reads it: what would move the cursor is shown as text.
    pub(super) is_terminal: bool,
    pub(super) has_colours: bool,
    pub(super) names_only: bool,
}

/// What has been shown, and what may have to be.
pub(super) struct MatchPrinter {
    root: PathBuf,
    asked: PathBuf,
    context: ContextLines,
    look: MatchStyle,
    /// A file may come in parts, between those of others.
    files: HashMap<PathBuf, PrintedFile>,
    last: Option<(PathBuf, u64)>,
}

#[derive(Default)]
struct PrintedFile {
    last_match: Option<u64>,
    /// Lines that are shown if a match follows.
    held: Vec<FoundLine>,
}

impl MatchPrinter {
    pub(super) fn new(root: &Path, asked: &Path, context: ContextLines, look: MatchStyle) -> Self {
        Self { root: root.to_owned(), asked: asked.to_owned(), context, look, files: HashMap::new(), last: None }
    }

    pub(super) fn render(&mut self, file: &FoundFile) -> Vec<u8> {
        let mut out = Vec::new();
        let Ok(native) = file.path.to_native() else { return out };
        let path = super::display_path(&self.root, &self.asked, &native);
        if self.look.names_only || file.lines.is_empty() {
            self.colour(&mut out, PATH, path.as_os_str().as_bytes());
            out.push(b'\n');
            return out;
        }
        let mut part = self.files.remove(&path).unwrap_or_default();
        for line in &file.lines {
            self.line(&mut out, &path, line, &mut part);
        }
        if self.context.before > 0 || self.context.after > 0 {
            self.files.insert(path, part);
        }
        out
    }

    /// The server sends as many lines before as after; which of them were asked for is known when the next match is.
    fn line(&mut self, out: &mut Vec<u8>, path: &Path, line: &FoundLine, part: &mut PrintedFile) {
        if line.matches.is_empty() {
            let follows = part.last_match.is_some_and(|at| line.number <= at + u64::from(self.context.after));
            if follows {
                self.put(out, path, line);
            } else {
                part.held.push(line.clone());
            }
            return;
        }
        for held in std::mem::take(&mut part.held) {
            if held.number + u64::from(self.context.before) >= line.number {
                self.put(out, path, &held);
            }
        }
        part.last_match = Some(line.number);
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
        // On a terminal, the end of a line with CR LF is only the end of a line.
        let bytes = bytes.strip_suffix(b"\r").filter(|_| self.look.is_terminal).unwrap_or(bytes);
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
        if !self.look.has_colours {
            return self.plain(out, bytes);
        }
        out.extend_from_slice(colour);
        self.plain(out, bytes);
        out.extend_from_slice(PLAIN);
    }

    /// On a terminal, a line that would move the cursor or change colours is shown as text. Tabs do no harm.
    fn plain(&self, out: &mut Vec<u8>, bytes: &[u8]) {
        if !self.look.is_terminal {
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
        let look = MatchStyle { is_terminal: has_colours, has_colours, names_only: false };
        let mut shown = MatchPrinter::new(Path::new("/r"), Path::new("src"), context, look);
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
