//! Splits Rust files into tokens, for the checks that follow paths and items over several lines. Knows words, `::`
//! and single characters, but no syntax.

use super::rust_source::{CodePart, SourceLine};

/// A name and the line where it stands, counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NameAtLine {
    pub(super) line: usize,
    pub(super) name: String,
}

/// A word (identifier, keyword or number), `::`, or one other character.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    /// Line number, counted from 1.
    pub(super) line: usize,
    pub(super) part: CodePart,
}

impl Token<'_> {
    /// Whether it is an identifier, a keyword or a number.
    pub(super) fn is_word(&self) -> bool {
        self.text.starts_with(is_word_part)
    }

    /// A copy of the text and the line, which does not borrow from the file.
    pub(super) fn name_at_line(&self) -> NameAtLine {
        NameAtLine { line: self.line, name: self.text.to_owned() }
    }
}

/// The tokens of these lines. In [`SourceLine::code`], comments and literals are already replaced by spaces.
pub(super) fn tokens<'a>(lines: &'a [SourceLine<'_>]) -> Vec<Token<'a>> {
    let mut tokens = Vec::new();
    for line in lines {
        let mut rest = line.code.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = match first {
                _ if is_word_part(first) => rest.find(|c| !is_word_part(c)).unwrap_or(rest.len()),
                _ if rest.starts_with("::") => 2,
                _ => first.len_utf8(),
            };
            let (text, after) = rest.split_at(length);
            tokens.push(Token { text, line: line.number, part: line.part });
            rest = after.trim_start();
        }
    }
    tokens
}

fn is_word_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::super::project::File;
    use super::super::rust_source;
    use super::*;

    #[test]
    fn words_and_path_separators_stay_whole() {
        let text = "use crate::a_1::{\n    B, // C\n};\nlet x: &'a str = \"d\";";
        let file = File { path: "a.rs".to_owned(), text: text.to_owned() };
        let lines = rust_source::lines(&file);
        let found: Vec<(usize, &str)> = tokens(&lines).iter().map(|token| (token.line, token.text)).collect();
        let row = |line, texts: &'static str| texts.split(' ').map(move |text| (line, text));
        let expected = row(1, "use crate :: a_1 :: {").chain(row(2, "B ,")).chain(row(3, "} ;"));
        let expected: Vec<_> = expected.chain(row(4, "let x : & ' a str = ;")).collect();
        assert_eq!(found, expected);
    }
}
