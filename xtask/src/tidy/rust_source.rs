//! Rust files as the checks read them: line by line, with comments, strings and character literals replaced by
//! spaces, each line marked as part of the product or of its tests. The reader knows tokens and braces, not syntax.

use std::path::Path;

use super::project::File;

/// A line of a Rust file.
#[derive(Debug)]
pub(super) struct SourceLine<'a> {
    /// Line number, counted from 1.
    pub(super) number: usize,
    /// The line as it is in the file.
    pub(super) raw: &'a str,
    /// The line with spaces for comments and for string and character literals.
    pub(super) code: String,
    pub(super) part: CodePart,
}

/// Whether a line belongs to the product or to its tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodePart {
    Product,
    Test,
}

/// Reads a file. Tests are files called `tests.rs` or below a folder `tests`, and modules under `#[cfg(test)]`.
pub(super) fn lines(file: &File) -> Vec<SourceLine<'_>> {
    let code = blanked(&file.text);
    let part = if is_test_file(&file.path) { CodePart::Test } else { CodePart::Product };
    let mut lines: Vec<SourceLine<'_>> = (file.text.lines().zip(code.lines()).zip(1..))
        .map(|((raw, code), number)| SourceLine { number, raw, code: code.to_owned(), part })
        .collect();
    mark_test_modules(&mut lines);
    lines
}

/// Whether `word` stands in `code`, and not only as a part of longer identifiers.
pub(super) fn has_word(code: &str, word: &str) -> bool {
    let is_ident = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .any(|(at, _)| !code[..at].ends_with(is_ident) && !code[at + word.len()..].starts_with(is_ident))
}

fn is_test_file(path: &str) -> bool {
    let path = Path::new(path);
    path.file_name().is_some_and(|name| name == "tests.rs")
        || path.components().any(|part| part.as_os_str() == "tests")
}

fn mark_test_modules(lines: &mut [SourceLine<'_>]) {
    let mut at = 0;
    while at < lines.len() {
        let end = match lines[at].code.trim() {
            "#[cfg(test)]" => end_of_module(lines, at),
            _ => None,
        };
        let next = end.map_or(at + 1, |end| end + 1);
        if end.is_some() {
            lines[at..next].iter_mut().for_each(|line| line.part = CodePart::Test);
        }
        at = next;
    }
}

/// The index of the last line of the module, or of the declaration of a module, that follows the attribute at
/// `start`. `None` if the attribute belongs to another item.
fn end_of_module(lines: &[SourceLine<'_>], start: usize) -> Option<usize> {
    let is_attribute = |line: &SourceLine<'_>| line.code.trim().is_empty() || line.code.trim().starts_with("#[");
    let first = start + lines[start..].iter().position(|line| !is_attribute(line))?;
    if !has_word(&lines[first].code, "mod") {
        return None;
    }
    let mut depth = 0_usize;
    for (at, line) in lines.iter().enumerate().skip(first) {
        depth += line.code.matches('{').count();
        depth = depth.saturating_sub(line.code.matches('}').count());
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The text with spaces for comments, strings and character literals. Line breaks stay where they are.
fn blanked(text: &str) -> String {
    let mut scanner = Scanner { rest: text, blanked: String::with_capacity(text.len()) };
    while let Some(next) = scanner.rest.chars().next() {
        scanner.scan_token(next);
    }
    scanner.blanked
}

struct Scanner<'a> {
    rest: &'a str,
    blanked: String,
}

impl Scanner<'_> {
    /// Keeps or blanks the token at the start of `rest`. `next` is its first character.
    fn scan_token(&mut self, next: char) {
        if self.rest.starts_with("//") {
            self.blank(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.blank(block_comment_length(self.rest));
        } else if next == '"' {
            self.blank(1 + quoted_length(&self.rest[1..], '"'));
        } else if let Some(length) = raw_string_length(self.rest) {
            self.blank(length);
        } else if let Some(length) = character_length(self.rest) {
            self.blank(length);
        } else if next.is_alphanumeric() || next == '_' {
            self.keep_identifier();
        } else {
            self.keep(next.len_utf8());
        }
    }

    /// Keeps a whole identifier, so that an `r` at its end does not start a raw string. Of the prefixes `br` and `cr`
    /// of a raw string it keeps only the first letter, because the `r` starts the raw string.
    fn keep_identifier(&mut self) {
        let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        let length = end.unwrap_or(self.rest.len());
        let is_prefix = matches!(&self.rest[..length], "br" | "cr") && raw_string_length(&self.rest[1..]).is_some();
        self.keep(if is_prefix { 1 } else { length });
    }

    fn keep(&mut self, length: usize) {
        let (kept, rest) = self.rest.split_at(length);
        self.blanked.push_str(kept);
        self.rest = rest;
    }

    fn blank(&mut self, length: usize) {
        let (gone, rest) = self.rest.split_at(length);
        self.blanked.extend(gone.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        self.rest = rest;
    }
}

/// The length of `text` up to the first quote that is not escaped, that quote included.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a raw string at the start of `text`. `None` if `text` starts with something else.
fn raw_string_length(text: &str) -> Option<usize> {
    let after = text.strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = body.find(&close).map_or(body.len(), |at| at + close.len());
    Some(text.len() - body.len() + end)
}

/// The length of a character literal at the start of `text`. `None` if `text` starts with something else, such as a
/// lifetime.
fn character_length(text: &str) -> Option<usize> {
    let after = text.strip_prefix('\'')?;
    if after.starts_with('\\') {
        return Some(1 + quoted_length(after, '\''));
    }
    let mut chars = after.chars();
    let length = chars.next()?.len_utf8();
    (chars.next() == Some('\'')).then_some(length + 2)
}

/// The length of the block comment at the start of `text`, comments inside it included.
fn block_comment_length(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        blanked(text).split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        let cases = [
            ("a // b\nc", "a c"),
            ("a /* b /* c */ d */ e", "a e"),
            (r#"a("b \" c") d"#, "a( ) d"),
            (r##"a(r#"b " c"#) d"##, "a( ) d"),
            (r##"a(br#"b " c"#) d"##, "a(b ) d"),
            ("var\"b\" c", "var c"),
            ("r#type x", "r#type x"),
            ("f::<'a>('\"', '\\'', 'ü') b", "f::<'a>( , , ) b"),
            ("\"never closed { }", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(words(text), expected.split(' ').filter(|w| !w.is_empty()).collect::<Vec<_>>(), "{text}");
        }
    }

    #[test]
    fn lines_stay_where_they_are() {
        let text = "a /* \n */ b \"\n\n\" c\nd";
        assert_eq!(blanked(text).lines().count(), text.lines().count());
        assert!(blanked(text).ends_with("\nd"));
    }

    #[test]
    fn a_test_module_ends_at_its_own_brace() {
        let text =
            "fn a() {}\n#[cfg(test)]\n#[rustfmt::skip]\nmod tests {\n    const X: &str = \"\n}\n\";\n}\nfn b() {}\n";
        assert_eq!(test_lines("src/a.rs", text), [2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn code_after_the_declaration_of_a_test_module_or_after_a_test_import_is_product() {
        assert_eq!(test_lines("src/a.rs", "#[cfg(test)]\nmod tests;\nfn a() {\n}\n"), [1, 2]);
        assert_eq!(test_lines("src/a.rs", "#[cfg(test)]\nuse x;\nmod a {\n}\n"), [0; 0]);
    }

    #[test]
    fn every_line_of_a_test_file_is_a_test() {
        assert_eq!(test_lines("crates/a/tests/b.rs", "fn a() {}"), [1]);
        assert_eq!(test_lines("crates/a/src/b/tests.rs", "fn a() {}"), [1]);
        assert_eq!(test_lines("crates/a/src/latest.rs", "fn a() {}"), [0; 0]);
    }

    #[test]
    fn has_word_finds_only_whole_identifiers() {
        assert!(has_word("use std::fs;", "fs"));
        assert!(!has_word("offset(fsync)", "fs"));
    }

    fn test_lines(path: &str, text: &str) -> Vec<usize> {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        let tests = lines(&file).into_iter().filter(|line| line.part == CodePart::Test);
        tests.map(|line| line.number).collect()
    }
}
