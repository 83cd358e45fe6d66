//! Terminal modes that a program has switched on and would switch off at its end: the alternate screen, mouse reports, a hidden cursor. If we
//! leave before the program ends, we switch them off. It reads and makes control sequences and knows no terminal.

/// Numbers of modes that make a terminal hard to use if they stay, and whether they are on by default. The alternate screen comes last:
/// leaving it restores the cursor that was saved with it.
const MODES: [(u16, bool); 12] = [
    (1, false),
    (9, false),
    (25, true),
    (1000, false),
    (1002, false),
    (1003, false),
    (1004, false),
    (1006, false),
    (2004, false),
    (47, false),
    (1047, false),
    (1049, false),
];
/// In bytes. A longer control sequence is not taken for one that switches a mode.
const LONGEST_SWITCH: usize = 64;

/// Which modes the output so far has switched.
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
                (4.., b'h' | b'l') => self.switch(byte == b'h'),
                _ => self.begun.clear(),
            }
        }
    }

    fn switch(&mut self, on: bool) {
        let begun = std::mem::take(&mut self.begun);
        let numbers = begun[3..].split(|byte| *byte == b';').filter_map(|digits| std::str::from_utf8(digits).ok());
        for number in numbers.filter_map(|digits| digits.parse::<u16>().ok()) {
            if let Some(index) = MODES.iter().position(|(mode, _)| *mode == number) {
                self.changed[index] = on != MODES[index].1;
            }
        }
    }

    /// The control sequences that set every changed mode, and the colours, to their defaults. Empty if no mode was changed.
    pub(crate) fn reset(&mut self) -> Vec<u8> {
        let changed = std::mem::take(&mut self.changed);
        let back = MODES.iter().zip(changed).filter(|(_, changed)| *changed);
        let mut sequences: Vec<u8> = back
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
        String::from_utf8(screen.reset()).unwrap()
    }

    #[test]
    fn modes_that_were_switched_on_are_switched_off() {
        assert_eq!(reset_after(&["a\x1b[?1049h\x1b[?25lb"]), "\x1b[?25h\x1b[?1049l\x1b[0m");
        assert_eq!(reset_after(&["\x1b", "[?10", "00;1006", "h"]), "\x1b[?1000l\x1b[?1006l\x1b[0m");
    }

    #[test]
    fn modes_that_were_switched_back_and_other_sequences_are_left() {
        assert_eq!(reset_after(&["\x1b[?1049h text \x1b[1;31m \x1b[?1049l"]), "");
        assert_eq!(reset_after(&["\x1b[1049h \x1b[?7l \x1b]0;?25l\x07 [?25l \x1b\x1b[2J"]), "");
    }
}
