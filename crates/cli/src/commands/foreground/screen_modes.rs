//! Remembers terminal modes that a program has changed and would change back at its end: the alternate screen, mouse
//! reports, a hidden cursor. If we leave before the program ends, we change the modes back. This module reads and
//! makes control sequences. It writes nothing to a terminal.

/// Numbers of the DEC private modes that make a terminal hard to use if they stay changed, and whether each is on by
/// default. A terminal that leaves the alternate screen restores its cursor. The modes of that screen come last, so
/// that no other mode is changed after that.
const MODES: [(u16, bool); 12] = [
    // The arrow keys send other sequences.
    (1, false),
    // The terminal reports mouse clicks.
    (9, false),
    // The cursor is visible.
    (25, true),
    // The terminal reports the mouse (1006: in another encoding), and whether it has the focus (1004).
    (1000, false),
    (1002, false),
    (1003, false),
    (1004, false),
    (1006, false),
    // Pasted text is bracketed.
    (2004, false),
    // Three modes for the alternate screen.
    (47, false),
    (1047, false),
    (1049, false),
];
/// Length in bytes, without the last byte, above which a control sequence is not taken for one that switches a mode.
const LONGEST_SWITCH: usize = 64;

/// Knows which modes the output so far has changed.
#[derive(Debug, Default)]
pub(crate) struct ScreenModes {
    /// Which of [`MODES`] differ from their default.
    changed: [bool; MODES.len()],
    /// The bytes of a control sequence that is not complete yet, from its escape character on.
    begun: Vec<u8>,
}

impl ScreenModes {
    /// Looks for sequences that switch modes in output that the terminal is about to show.
    pub(crate) fn watch(&mut self, mut shown: &[u8]) {
        while let Some((&byte, rest)) = shown.split_first() {
            shown = rest;
            match (self.begun.len(), byte) {
                (_, b'\x1b') => self.begun = vec![byte],
                (0, _) => match shown.iter().position(|byte| *byte == b'\x1b') {
                    Some(escape) => shown = &shown[escape..],
                    None => return,
                },
                (1, b'[') | (2, b'?') | (3..LONGEST_SWITCH, b'0'..=b'9' | b';') => self.begun.push(byte),
                (4.., b'h' | b'l') => self.remember_switch(byte == b'h'),
                _ => self.begun.clear(),
            }
        }
    }

    /// Remembers that the sequence in `begun` switches its modes on or off.
    fn remember_switch(&mut self, on: bool) {
        let begun = std::mem::take(&mut self.begun);
        let numbers = begun[3..].split(|byte| *byte == b';').filter_map(|digits| std::str::from_utf8(digits).ok());
        for number in numbers.filter_map(|digits| digits.parse::<u16>().ok()) {
            if let Some(index) = MODES.iter().position(|(mode, _)| *mode == number) {
                self.changed[index] = on != MODES[index].1;
            }
        }
    }

    /// The control sequences that set every changed mode, and the colours, to their defaults. Empty if no mode was
    /// changed. Afterwards all modes count as unchanged.
    pub(crate) fn take_reset_sequences(&mut self) -> Vec<u8> {
        let changed = std::mem::take(&mut self.changed);
        let to_reset = MODES.iter().zip(changed).filter(|(_, changed)| *changed);
        let mut sequences: Vec<u8> = to_reset
            .flat_map(|((mode, on), _)| format!("\x1b[?{mode}{}", if *on { 'h' } else { 'l' }).into_bytes())
            .collect();
        if !sequences.is_empty() {
            sequences.extend(b"\x1b[0m");
        }
        sequences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reset_after(pieces: &[&str]) -> String {
        let mut screen = ScreenModes::default();
        pieces.iter().for_each(|piece| screen.watch(piece.as_bytes()));
        String::from_utf8(screen.take_reset_sequences()).unwrap()
    }

    #[test]
    fn changed_modes_are_set_to_their_defaults() {
        assert_eq!(reset_after(&["a\x1b[?1049h\x1b[?25lb"]), "\x1b[?25h\x1b[?1049l\x1b[0m");
        assert_eq!(reset_after(&["\x1b", "[?10", "00;1006", "h"]), "\x1b[?1000l\x1b[?1006l\x1b[0m");
    }

    #[test]
    fn modes_that_were_switched_back_and_other_sequences_need_no_reset() {
        assert_eq!(reset_after(&["\x1b[?1049h text \x1b[1;31m \x1b[?1049l"]), "");
        assert_eq!(reset_after(&["\x1b[1049h \x1b[?7l \x1b]0;?25l\x07 [?25l \x1b\x1b[2J"]), "");
    }
}
