//! Keys that are for us and not for the program at the other end: a tilde after Enter, and what follows it.

/// What a person wants of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// `~.`: leave.
    Leave,
}

/// Looks for such keys in what is typed.
#[derive(Debug)]
pub(crate) struct Escapes {
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Where a tilde means something.
    LineStart,
    /// After that tilde, which is held back.
    Tilde,
    /// In the middle of a line.
    Line,
}

impl Default for Escapes {
    fn default() -> Self {
        Self { place: Place::LineStart }
    }
}

impl Escapes {
    /// What of these keys is for the program, and what for us. After a wish nothing is passed on.
    pub(crate) fn take(&mut self, typed: &[u8]) -> (Vec<u8>, Option<Wish>) {
        let mut passed = Vec::with_capacity(typed.len() + 1);
        for &key in typed {
            match (self.place, key) {
                (Place::LineStart, b'~') => self.place = Place::Tilde,
                (Place::Tilde, b'.') => {
                    self.place = Place::Line;
                    return (passed, Some(Wish::Leave));
                }
                (place, key) => {
                    // Two tildes are one; before anything else it was a tilde like others.
                    if place == Place::Tilde && key != b'~' {
                        passed.push(b'~');
                    }
                    passed.push(key);
                    self.place = if matches!(key, b'\r' | b'\n') { Place::LineStart } else { Place::Line };
                }
            }
        }
        (passed, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(pieces: &[&str]) -> (String, Option<Wish>) {
        let mut escapes = Escapes::default();
        let mut all = String::new();
        for piece in pieces {
            let (passed, wish) = escapes.take(piece.as_bytes());
            all.push_str(std::str::from_utf8(&passed).unwrap());
            if wish.is_some() {
                return (all, wish);
            }
        }
        (all, None)
    }

    #[test]
    fn a_tilde_and_a_dot_after_enter_is_the_wish_to_leave() {
        assert_eq!(typed(&["~."]), (String::new(), Some(Wish::Leave)));
        assert_eq!(typed(&["ls\r", "~", ".more"]), ("ls\r".into(), Some(Wish::Leave)));
        assert_eq!(typed(&["a~.", "\n~."]), ("a~.\n".into(), Some(Wish::Leave)));
    }

    #[test]
    fn two_tildes_are_one_and_others_are_nothing_special() {
        assert_eq!(typed(&["~~."]), ("~.".into(), None));
        assert_eq!(typed(&["~", "/bin\r"]), ("~/bin\r".into(), None));
        assert_eq!(typed(&["cd ~\r~\r~~~"]), ("cd ~\r~\r~~".into(), None));
    }
}
