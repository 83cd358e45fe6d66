//! Takes terminal queries out of old output, which the program printed before we attached to it. A query is a
//! control sequence that a program prints to ask its terminal, for example, where the cursor is. The terminal sends
//! the answer as if it had been typed. If an old query were shown again, our terminal would send an answer that the
//! program does not expect. The caller says which output is old.

use bytes::Bytes;

/// Length in bytes above which a control sequence is not taken for a query.
const LONGEST_QUERY: usize = 4096;

/// The control character ENQ, to which a terminal answers with its name.
const ENQUIRY: u8 = 0x05;
const BELL: u8 = 0x07;
const CANCEL: u8 = 0x18;
const SUBSTITUTE: u8 = 0x1a;
const ESCAPE: u8 = 0x1b;

/// First parameters of `CSI … t` that ask for a report. Other values change the window or its title.
const WINDOW_REPORTS: [&[u8]; 9] = [b"11", b"13", b"14", b"15", b"16", b"18", b"19", b"20", b"21"];

/// Takes queries out of a stream of output.
#[derive(Debug, Default)]
pub(crate) struct QueryFilter {
    /// The bytes of a control sequence that is not complete yet, from its escape character on.
    begun: Vec<u8>,
}

impl QueryFilter {
    /// Removes queries from old output. New output is returned unchanged, after bytes of old output that were held
    /// back.
    pub(crate) fn filter_if(&mut self, is_old: bool, output: Bytes) -> Bytes {
        if is_old {
            return self.filter(&output).into();
        }
        let held_back = self.take_held_back();
        if held_back.is_empty() { output } else { [&held_back[..], &output[..]].concat().into() }
    }

    /// The output without queries. The start of a sequence that may become a query is held back until the rest comes.
    fn filter(&mut self, output: &[u8]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(output.len());
        for &byte in output {
            self.filter_byte(byte, &mut shown);
        }
        shown
    }

    /// Takes the bytes that were held back. It is called when no old output follows.
    fn take_held_back(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.begun)
    }

    /// Adds the byte to `shown`, or to the sequence that has begun. A sequence that turns out to be no query is added
    /// to `shown` as a whole.
    fn filter_byte(&mut self, byte: u8, shown: &mut Vec<u8>) {
        if self.begun.is_empty() {
            match byte {
                ESCAPE => self.begun.push(byte),
                ENQUIRY => {}
                _ => shown.push(byte),
            }
            return;
        }
        // An escape character begins another sequence, unless it begins the terminator of a string.
        if byte == ESCAPE && !self.is_string() {
            shown.append(&mut self.begun);
        }
        self.begun.push(byte);
        if self.is_whole() {
            if is_query(&self.begun) {
                self.begun.clear();
            } else {
                shown.append(&mut self.begun);
            }
        } else if self.begun.len() >= LONGEST_QUERY || matches!(byte, CANCEL | SUBSTITUTE) {
            shown.append(&mut self.begun);
        }
    }

    /// Whether the sequence carries a text, which ends with a bell or a string terminator.
    fn is_string(&self) -> bool {
        matches!(self.begun.get(1), Some(b']' | b'P' | b'_' | b'^' | b'X'))
    }

    fn is_whole(&self) -> bool {
        let sequence = &self.begun;
        match sequence.get(1) {
            None => false,
            Some(_) if self.is_string() => sequence.ends_with(b"\x1b\\") || sequence.last() == Some(&BELL),
            Some(b'[') => sequence.len() > 2 && matches!(sequence.last(), Some(0x40..=0x7e)),
            // Intermediate bytes, as in `ESC ( B`, which chooses a character set.
            Some(0x20..=0x2f) => matches!(sequence.last(), Some(0x30..=0x7e)),
            Some(_) => true,
        }
    }
}

/// Whether a terminal answers this complete sequence.
fn is_query(sequence: &[u8]) -> bool {
    let Some((&kind, rest)) = sequence.get(1..).and_then(<[u8]>::split_first) else { return false };
    match kind {
        // The type of the terminal, in an old form.
        b'Z' => true,
        b'[' => rest.split_last().is_some_and(|(last, parameters)| is_control_query(parameters, *last)),
        // A colour or the clipboard.
        b']' => text(rest).ends_with(b";?"),
        // A setting of the terminal, or a capability from terminfo.
        b'P' => rest.starts_with(b"$q") || rest.starts_with(b"+q"),
        // Whether the terminal can show images (kitty).
        b'_' => {
            rest.starts_with(b"G")
                && text(rest).split(|byte| matches!(byte, b',' | b';' | b'G')).any(|part| part == b"a=q")
        }
        _ => false,
    }
}

/// Whether a terminal answers the sequence `CSI parameters last`.
fn is_control_query(parameters: &[u8], last: u8) -> bool {
    let is_private = parameters.first() == Some(&b'?');
    match last {
        // Status, or the position of the cursor.
        b'n' => parameters.first() != Some(&b'>'),
        // The type of the terminal.
        b'c' => !is_private,
        // The name and the version of the terminal.
        b'q' => parameters.first() == Some(&b'>'),
        // Whether a mode is on.
        b'p' => parameters.ends_with(b"$"),
        b't' => parameters.split(|byte| *byte == b';').next().is_some_and(|report| WINDOW_REPORTS.contains(&report)),
        // The mode of the keyboard (kitty).
        b'u' => parameters == b"?",
        // The speed and the parity of the line.
        b'x' => parameters.iter().all(u8::is_ascii_digit),
        // How modified keys are sent, or the limits of graphics.
        b'm' | b'S' => is_private,
        _ => false,
    }
}

/// The text of a sequence without its terminator.
fn text(rest: &[u8]) -> &[u8] {
    rest.strip_suffix(b"\x1b\\").or_else(|| rest.strip_suffix(&[BELL])).unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered(pieces: &[&str]) -> String {
        let mut filter = QueryFilter::default();
        let mut shown: Vec<u8> = pieces.iter().flat_map(|piece| filter.filter(piece.as_bytes())).collect();
        shown.extend(filter.take_held_back());
        String::from_utf8(shown).unwrap()
    }

    #[test]
    fn queries_are_removed_also_if_they_come_in_two_pieces() {
        for query in [
            "\x1b[6n",
            "\x1b[5n",
            "\x1b[?6n",
            "\x1b[c",
            "\x1b[0c",
            "\x1b[>c",
            "\x1b[=c",
            "\x1bZ",
            "\x05",
            "\x1b[>q",
            "\x1b[>0q",
            "\x1b[?2026$p",
            "\x1b[4$p",
            "\x1b[18t",
            "\x1b[14;2t",
            "\x1b[?u",
            "\x1b[x",
            "\x1b[1x",
            "\x1b[?4m",
            "\x1b[?2;1;0S",
            "\x1b]11;?\x07",
            "\x1b]10;?\x1b\\",
            "\x1b]4;1;?\x1b\\",
            "\x1b]52;c;?\x07",
            "\x1bP$qm\x1b\\",
            "\x1bP+q544e\x1b\\",
            "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\",
        ] {
            assert_eq!(filtered(&[&format!("a{query}b")]), "ab", "{query:?}");
            let (first, second) = query.split_at(query.len() / 2);
            assert_eq!(filtered(&["a", first, second, "b"]), "ab", "{query:?} in two pieces");
        }
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        for output in [
            "text \u{e4}\u{1f600}\r\n",
            "\x1b[1;31mred\x1b[0m",
            "\x1b[?1049h\x1b[?25l\x1b[2J\x1b[H",
            "\x1b[22;0;0t",
            "\x1b[8;24;80t",
            "\x1b]0;title?\x07",
            "\x1b]8;;http://host/?a=q\x1b\\link\x1b]8;;\x1b\\",
            "\x1b(B\x1b=\x1b>\x1b7\x1b8",
            "\x1b[>4;1m",
            "\x1b[>4n",
            "\x1b[2 q",
            "\x1b[!p",
            "\x1b[u",
            "\x1b[s",
            "\x1b[?6c",
            "\x1b[>1u",
            "\x1b[3S",
            "\x1b\x1b[A",
            "\x1b[12\x1b[A",
            "\x1b[12\x18n",
            "\x1b",
            "\x1b[6",
            "\x1b]11;",
        ] {
            assert_eq!(filtered(&[output]), output, "{output:?}");
        }
        let long = format!("\x1b]52;c;{}\x07", "A".repeat(3 * LONGEST_QUERY));
        assert_eq!(filtered(&[&long]), long);
    }
}
