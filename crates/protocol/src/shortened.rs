//! Shortens text that a peer has chosen, such as a method name or an id, for error messages and lists.

use std::borrow::Cow;

/// Enough to recognise a name. The limit keeps a long name from making the answer long too.
const SHOWN_BYTES: usize = 200;

/// The text itself, or its first 200 bytes and `…` if it is longer. It is never cut within a character.
pub fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= SHOWN_BYTES {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}…", &text[..text.floor_char_boundary(SHOWN_BYTES)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        let long = "ä".repeat(101);
        assert_eq!(shortened(&long), format!("{}…", "ä".repeat(100)));
        assert_eq!(shortened(&format!("x{long}")), format!("x{}…", "ä".repeat(99)));
    }
}
