//! Finds keys that are for us and not for the process: a tilde at the start of a line and the key that follows it, as
//! in ssh. This module knows no terminal and no process; it only looks at bytes.

/// A command that a person gives us with escape keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EscapeCommand {
    /// `~.`: leave the process. In a kept session, which outlives this command, the process goes on. Otherwise the
    /// session ends, and with it the process.
    Leave,
}

/// Finds escape keys in typed bytes.
#[derive(Debug)]
pub(crate) struct EscapeKeys {
    position: LinePosition,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePosition {
    /// At the start of a line: after Enter, or before the first key. Here a tilde may begin a command for us.
    LineStart,
    /// After such a tilde, which is held back until the next key.
    Tilde,
    /// Elsewhere, where a tilde is a tilde.
    WithinLine,
}

impl Default for EscapeKeys {
    fn default() -> Self {
        Self { position: LinePosition::LineStart }
    }
}

impl EscapeKeys {
    /// Splits typed bytes into those for the process and a command for us. Bytes after a command are dropped.
    pub(crate) fn take(&mut self, typed: &[u8]) -> (Vec<u8>, Option<EscapeCommand>) {
        let mut passed = Vec::with_capacity(typed.len() + 1);
        for &key in typed {
            match (self.position, key) {
                (LinePosition::LineStart, b'~') => self.position = LinePosition::Tilde,
                (LinePosition::Tilde, b'.') => {
                    self.position = LinePosition::WithinLine;
                    return (passed, Some(EscapeCommand::Leave));
                }
                (position, key) => {
                    // `~~` means one tilde; a tilde before any other key is passed on with that key.
                    if position == LinePosition::Tilde && key != b'~' {
                        passed.push(b'~');
                    }
                    passed.push(key);
                    self.position =
                        if matches!(key, b'\r' | b'\n') { LinePosition::LineStart } else { LinePosition::WithinLine };
                }
            }
        }
        (passed, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_typed(pieces: &[&str]) -> (String, Option<EscapeCommand>) {
        let mut escapes = EscapeKeys::default();
        let mut all = String::new();
        for piece in pieces {
            let (passed, command) = escapes.take(piece.as_bytes());
            all.push_str(std::str::from_utf8(&passed).unwrap());
            if command.is_some() {
                return (all, command);
            }
        }
        (all, None)
    }

    #[test]
    fn a_tilde_and_a_dot_at_the_start_of_a_line_leave_the_process() {
        assert_eq!(split_typed(&["~."]), (String::new(), Some(EscapeCommand::Leave)));
        assert_eq!(split_typed(&["ls\r", "~", ".more"]), ("ls\r".into(), Some(EscapeCommand::Leave)));
        assert_eq!(split_typed(&["a~.", "\n~."]), ("a~.\n".into(), Some(EscapeCommand::Leave)));
    }

    #[test]
    fn two_tildes_at_the_start_of_a_line_are_one_and_other_tildes_are_passed_on() {
        assert_eq!(split_typed(&["~~."]), ("~.".into(), None));
        assert_eq!(split_typed(&["~", "/bin\r"]), ("~/bin\r".into(), None));
        assert_eq!(split_typed(&["cd ~\r~\r~~~"]), ("cd ~\r~\r~~".into(), None));
    }
}
