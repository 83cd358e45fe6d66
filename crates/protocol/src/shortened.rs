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

/// The text itself, or its beginning, `…` and its end if it is longer than `most_bytes`. The end of an error text says what is wrong with the
/// text before it, so the middle is cut out. It is never cut within a character.
pub(crate) fn without_middle(text: String, most_bytes: usize) -> String {
    if text.len() <= most_bytes {
        return text;
    }
    let kept = most_bytes - '…'.len_utf8();
    let beginning = &text[..text.floor_char_boundary(kept - kept / 4)];
    let end = &text[text.ceil_char_boundary(text.len() - kept / 4)..];
    format!("{beginning}…{end}")
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

    #[test]
    fn the_middle_of_a_long_text_is_cut_out_between_characters() {
        assert_eq!(without_middle("0123456789".to_owned(), 10), "0123456789");
        assert_eq!(without_middle("0123456789abcdef".to_owned(), 15), "012345678…def");
        assert_eq!(without_middle("ä".repeat(9), 15), "ääää…ä");
    }
}
