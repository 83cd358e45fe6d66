//! The syntax of the lines of a token file: `TOKEN` or `NAME: TOKEN`. Blank lines and lines that begin with `#` hold
//! no token. The rules about short tokens, repeated tokens and reserved names are in `tokens.rs`.

/// Longest name of a token, in bytes. Names are labels in logs and metrics.
const LONGEST_NAME: usize = 64;

/// A line that holds a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenLine<'a> {
    /// Number of the line, from 1.
    pub(super) number: usize,
    /// The text before the colon; `None` if the line holds only a token. It may be an invalid name.
    pub(super) name: Option<&'a [u8]>,
    pub(super) token: &'a [u8],
}

/// The lines of `text` that hold a token.
pub(super) fn token_lines(text: &[u8]) -> impl Iterator<Item = TokenLine<'_>> {
    let lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let numbered = lines.enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#"));
    numbered.map(|(index, line)| {
        let (name, token) = split_name(line);
        TokenLine { number: index + 1, name, token }
    })
}

/// Splits a line into name and token. Only a colon with white space behind it ends a name, so a token may contain colons.
fn split_name(line: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match line.windows(2).position(|pair| pair[0] == b':' && pair[1].is_ascii_whitespace()) {
        Some(colon) => (Some(line[..colon].trim_ascii_end()), line[colon + 1..].trim_ascii_start()),
        None => (None, line),
    }
}

/// Returns the name if it is valid: 1 to 64 ASCII letters, digits, `-`, `_`, `.` and `@`.
pub(super) fn valid_name(name: &[u8]) -> Option<&str> {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(byte);
    let is_valid = (1..=LONGEST_NAME).contains(&name.len()) && name.iter().all(is_allowed);
    std::str::from_utf8(name).ok().filter(|_| is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_name_if_white_space_follows_a_colon() {
        let text = b"# all of them\n\nplain-token\n laptop:  token \nci :\ttoken\nto:ken\nname:";
        let lines: Vec<_> = token_lines(text).collect();
        let expected = [
            TokenLine { number: 3, name: None, token: b"plain-token" },
            TokenLine { number: 4, name: Some(b"laptop"), token: b"token" },
            TokenLine { number: 5, name: Some(b"ci"), token: b"token" },
            TokenLine { number: 6, name: None, token: b"to:ken" },
            TokenLine { number: 7, name: None, token: b"name:" },
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_valid_name_has_1_to_64_permitted_characters() {
        for name in ["a", "build-7", "max@laptop.example", &"x".repeat(LONGEST_NAME)] {
            assert_eq!(valid_name(name.as_bytes()), Some(name));
        }
        for name in ["", "two words", "na\"me", "näme", "a:b", &"x".repeat(LONGEST_NAME + 1)] {
            assert_eq!(valid_name(name.as_bytes()), None, "{name}");
        }
    }
}
