//! Names of the peer's choosing as they are shown in messages of ours.

use std::borrow::Cow;

/// Nobody needs more of a name to recognise it, and an answer must not grow with it.
const SHOWN_BYTES: usize = 200;

/// The text, or its beginning if it is long.
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
    fn long_names_end_early_and_between_characters() {
        assert_eq!(shortened("short"), "short");
        let long = "ä".repeat(101);
        assert_eq!(shortened(&long), format!("{}…", "ä".repeat(100)));
        assert_eq!(shortened(&format!("x{long}")), format!("x{}…", "ä".repeat(99)));
    }
}
