//! The pattern for one name of a path: `*`, `?`, `[...]`, and `\`, which takes the special meaning from the next character.
//! A `[` without `]` is an ordinary character.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// The pattern for one name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NamePattern {
    text: String,
    parts: Vec<NamePart>,
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum NamePart {
    Character(u32),
    AnyCharacter,
    AnyText,
    Class { negated: bool, ranges: Vec<(u32, u32)> },
}

/// Added to a byte that is not UTF-8, so that it differs from every character.
const RAW_BYTE: u32 = 0x0020_0000;

/// A name as numbers: a character by its code, a byte that is not UTF-8 as a number of its own. So `?` matches one
/// character, or one such byte.
pub(crate) struct NameCharacters(Vec<u32>);

impl NameCharacters {
    pub(crate) fn new(name: &OsStr) -> Self {
        let name = name.as_bytes();
        let mut characters = Vec::with_capacity(name.len());
        for chunk in name.utf8_chunks() {
            characters.extend(chunk.valid().chars().map(u32::from));
            characters.extend(chunk.invalid().iter().map(|byte| RAW_BYTE + u32::from(*byte)));
        }
        Self(characters)
    }
}

/// The position of the `]` that ends the class which begins at `start`. A `]` that comes first belongs to the class.
/// None if the class is not closed within its name.
pub(super) fn class_end(pattern: &[u8], start: usize) -> Option<usize> {
    let negation = usize::from(matches!(pattern.get(start + 1), Some(b'!' | b'^')));
    let first = start + 1 + negation;
    let name_end = pattern[start..].iter().position(|byte| *byte == b'/').map_or(pattern.len(), |at| start + at);
    let after_first = pattern.get(first + 1..name_end)?;
    after_first.iter().position(|byte| *byte == b']').map(|at| first + 1 + at)
}

impl NamePattern {
    /// The pattern `*`, which every name matches.
    pub(super) fn any() -> Self {
        Self { text: "*".to_owned(), parts: vec![NamePart::AnyText] }
    }

    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let mut parts = Vec::new();
        let mut at = 0;
        while let Some(character) = text[at..].chars().next() {
            let mut end = at + character.len_utf8();
            match character {
                '*' if parts.last() == Some(&NamePart::AnyText) => {}
                '*' => parts.push(NamePart::AnyText),
                '?' => parts.push(NamePart::AnyCharacter),
                '\\' => {
                    let escaped = text[end..].chars().next().unwrap_or('\\');
                    end = (end + escaped.len_utf8()).min(text.len());
                    parts.push(NamePart::Character(escaped.into()));
                }
                '[' => match class_end(text.as_bytes(), at) {
                    Some(class_end) => {
                        parts.push(parse_class(&text[at + 1..class_end])?);
                        end = class_end + 1;
                    }
                    None => parts.push(NamePart::Character('['.into())),
                },
                other => parts.push(NamePart::Character(other.into())),
            }
            at = end;
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// The name that this pattern matches, if it has no wildcard.
    pub(super) fn literal(&self) -> Option<String> {
        self.parts
            .iter()
            .map(|part| match part {
                NamePart::Character(code) => char::from_u32(*code),
                _ => None,
            })
            .collect()
    }

    /// Whether the pattern matches the whole name. Adds the steps that this takes to `steps`. Only the last `*` is ever tried again, so
    /// there are at most as many as the product of both lengths.
    pub(super) fn matches(&self, name: &NameCharacters, steps: &mut usize) -> bool {
        let name = name.0.as_slice();
        *steps += 1;
        // Most names differ from most patterns in their last character.
        if let (Some(NamePart::Character(wanted)), Some(last)) = (self.parts.last(), name.last())
            && wanted != last
        {
            return false;
        }
        let mut part = 0;
        let mut at = 0;
        let mut last_star: Option<(usize, usize)> = None;
        while at < name.len() {
            *steps += 1;
            match self.parts.get(part) {
                Some(NamePart::AnyText) => {
                    last_star = Some((part, at));
                    part += 1;
                }
                Some(one) if one.matches(name[at]) => {
                    part += 1;
                    at += 1;
                }
                _ => {
                    let Some((star, taken_to)) = &mut last_star else { return false };
                    *taken_to += 1;
                    at = *taken_to;
                    part = *star + 1;
                }
            }
        }
        self.parts[part..].iter().all(|rest| *rest == NamePart::AnyText)
    }
}

impl NamePart {
    fn matches(&self, character: u32) -> bool {
        match self {
            Self::Character(code) => *code == character,
            Self::AnyCharacter => true,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(first, last)| (*first..=*last).contains(&character)) != *negated
            }
            Self::AnyText => false,
        }
    }
}

/// Reads the text between `[` and `]`. An ambiguous class is refused: a deny pattern that silently matches nothing is
/// worse than an error.
fn parse_class(inside: &str) -> Result<NamePart, &'static str> {
    let (negated, inside) = match inside.strip_prefix(['!', '^']) {
        Some(rest) => (true, rest),
        None => (false, inside),
    };
    if inside.contains("[:") {
        return Err("named classes such as `[:alpha:]` are not supported");
    }
    let characters: Vec<u32> = inside.chars().map(u32::from).collect();
    let mut ranges = Vec::new();
    let mut rest = characters.as_slice();
    loop {
        rest = match *rest {
            [] => return Ok(NamePart::Class { negated, ranges }),
            [first, dash, last, ref more @ ..] if dash == u32::from('-') => {
                if first > last {
                    return Err("a range in `[...]` ends before it begins");
                }
                ranges.push((first, last));
                more
            }
            [one, ref more @ ..] => {
                ranges.push((one, one));
                more
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &[u8]) -> bool {
        NamePattern::parse(pattern).unwrap().matches(&NameCharacters::new(OsStr::from_bytes(name)), &mut 0)
    }

    #[test]
    fn wildcards_match_characters() {
        for (pattern, name, expected) in [
            ("a?c", "abc", true),
            ("a?c", "aüc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("*", ".hidden", true),
            ("**.a", "x.a", true),
            ("*a*b", "xaxxbxb", true),
            ("*a*b", "xaxxbx", false),
            ("[a-c]x", "bx", true),
            ("[a-c]x", "dx", false),
            ("[!a-c]x", "dx", true),
            ("[^a-c]x", "ax", false),
            ("[]a]", "]", true),
            ("[!]a]", "]", false),
            ("[a-]", "-", true),
            ("[ä-ö]", "ö", true),
            (r"[\]x", r"\x", true),
            (r"\*", "*", true),
            (r"\*", "x", false),
            (r"a\", r"a\", true),
            ("[abc", "[abc", true),
            ("[abc", "a", false),
            ("[", "[", true),
            ("[]", "[]", true),
            ("[!", "[!", true),
        ] {
            assert_eq!(matches(pattern, name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn names_that_are_not_utf_8_are_matched_byte_by_byte() {
        assert!(matches("a?b", b"a\xFFb"));
        assert!(matches("*.key", b"\xFE\xFF.key"));
        assert!(matches("[!a]", b"\xFF"));
        assert!(!matches("?", b"\xFF\xFF"));
        assert!(!matches("\u{ff}", b"\xFF"), "the byte is not the character with the same number");
    }

    #[test]
    fn classes_with_a_doubtful_meaning_are_refused() {
        for pattern in ["[z-a]", "x[[:alpha:]]"] {
            assert!(NamePattern::parse(pattern).is_err(), "{pattern}");
        }
    }
}
