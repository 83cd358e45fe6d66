//! A text that must not be shown. Start with [`Secret`].

use std::fmt;

use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

/// A key or token. Its memory is overwritten when it is dropped, and its `Debug` text does not contain it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(Zeroizing<String>);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text itself, for a header or a signature.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// The text without white space at its ends. `None` if nothing is left.
    pub(crate) fn trimmed(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self::new(text))
    }

    /// Whether the text can be sent in a header: visible ASCII without spaces.
    pub(crate) fn is_header_word(&self) -> bool {
        is_header_word(&self.0)
    }
}

/// Whether a text can be the value of a header: one or more visible ASCII characters without spaces.
pub(crate) fn is_header_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Some(Secret::new("key"))), "Some([secret])");
    }

    #[test]
    fn only_a_word_of_visible_ascii_can_be_sent_in_a_header() {
        for (text, is_word) in [("sk-1_~", true), ("", false), ("a b", false), ("a\r\nb: c", false), ("ä", false)] {
            assert_eq!(Secret::new(text).is_header_word(), is_word, "{text:?}");
        }
        assert_eq!(Secret::trimmed(" \n"), None);
        assert_eq!(Secret::trimmed(" a\n").unwrap().expose(), "a");
    }
}
