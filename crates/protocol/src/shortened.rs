//! Shortens text that a peer has chosen, such as a method name or an id, for error messages and lists.

use std::borrow::Cow;

/// The most bytes of a text that are shown: enough to recognise a name. A long name must not make the answer long
/// too.
const SHOWN_BYTES: usize = 200;

/// The text itself, or, if it is longer than 200 bytes, its beginning and `…`. The beginning has at most 200 bytes,
/// and ends between two characters.
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
    fn short_text_stays_whole_and_long_text_is_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        let long = "ä".repeat(101);
        assert_eq!(shortened(&long), format!("{}…", "ä".repeat(100)));
        assert_eq!(shortened(&format!("x{long}")), format!("x{}…", "ä".repeat(99)));
    }
}
