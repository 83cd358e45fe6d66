//! Keeps the beginning and the end of an output of any length, within a limit. The result depends only on the bytes,
//! not on the pieces in which they came.

use std::collections::VecDeque;

/// Keeps the first and the last bytes of a stream, and counts the bytes between them.
///
/// ```
/// let mut output = client::HeadTail::new(8);
/// output.push(b"0123456789");
/// output.push(b"abcdef");
/// let abridged = output.abridge(8);
/// assert_eq!(abridged.text, "0123\n[... 8 bytes omitted ...]\ncdef");
/// assert_eq!((abridged.omitted_bytes, output.total_bytes()), (8, 16));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// The most bytes of `head`.
    head_budget: usize,
    /// The most bytes of `tail`.
    tail_budget: usize,
    /// Bytes of the whole stream.
    total: u64,
}

/// Output as text, shortened in the middle if it is too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abridged {
    /// The whole output, or head and tail with a line between them that says how much is left out. Bytes that are not
    /// UTF-8 are replaced.
    pub text: String,
    /// Bytes of the output that are not in `text`.
    pub omitted_bytes: u64,
}

impl HeadTail {
    /// Keeps at most `budget` bytes: half of them for the head, half for the tail.
    pub fn new(budget: usize) -> Self {
        Self::with_budgets(budget / 2, budget - budget / 2)
    }

    /// Keeps at most this many bytes of the head and of the tail.
    ///
    /// ```
    /// let mut tail = client::HeadTail::with_budgets(0, 3);
    /// tail.push(b"only the end");
    /// assert_eq!(tail.abridge(3).text, "[... 9 bytes omitted ...]\nend");
    /// ```
    pub fn with_budgets(head: usize, tail: usize) -> Self {
        Self { head_budget: head, tail_budget: tail, ..Self::default() }
    }

    /// Appends the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.head_budget - self.head.len();
        let (to_head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(to_head);
        // If the rest is longer than the tail may be, only the end of the rest is copied.
        let rest = &rest[rest.len().saturating_sub(self.tail_budget)..];
        let superfluous = (self.tail.len() + rest.len()).saturating_sub(self.tail_budget);
        self.tail.drain(..superfluous);
        self.tail.extend(rest);
    }

    /// Length of the whole stream in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    /// Number of bytes that are kept, head and tail together.
    pub fn kept_bytes(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Bytes between head and tail that were dropped.
    pub fn omitted_bytes(&self) -> u64 {
        self.total - self.kept_bytes() as u64
    }

    /// The stream as text: at most `max_bytes` bytes of the stream. The line that says how much is left out does not
    /// count. A character that would be cut is left out.
    pub fn abridge(&self, max_bytes: usize) -> Abridged {
        let (mut head, mut tail) = (self.head.clone(), Vec::from(self.tail.clone()));
        if self.omitted_bytes() == 0 {
            head.append(&mut tail);
            if head.len() <= max_bytes {
                return Abridged { text: lossy(&head), omitted_bytes: 0 };
            }
            tail.clone_from(&head);
        }
        head.truncate(self.head_share(max_bytes));
        head.truncate(head.len() - incomplete_at_end(&head));
        let superfluous = tail.len().saturating_sub(max_bytes - self.head_share(max_bytes));
        let tail = &tail[superfluous..];
        let tail = &tail[incomplete_at_start(tail)..];
        let omitted_bytes = self.total - (head.len() + tail.len()) as u64;
        let [break_before, break_after] = [&head[..], tail].map(|part| if part.is_empty() { "" } else { "\n" });
        let marker = format!("{break_before}[... {omitted_bytes} bytes omitted ...]{break_after}");
        Abridged { text: lossy(&head) + &marker + &lossy(tail), omitted_bytes }
    }

    /// Takes the stream so far out of `self`. The next bytes begin a new head. With [`StreamRest::MoreFollows`], an
    /// incomplete character at the end stays in `self`, where its other bytes will complete it.
    pub(crate) fn take(&mut self, rest: StreamRest) -> Self {
        let mut taken = std::mem::replace(self, Self::with_budgets(self.head_budget, self.tail_budget));
        if rest == StreamRest::MoreFollows {
            self.push(&taken.remove_incomplete_end());
        }
        taken
    }

    /// Removes the bytes of an incomplete character at the end, and returns them.
    fn remove_incomplete_end(&mut self) -> Vec<u8> {
        // If bytes between head and tail were dropped, a character cannot begin in the head and continue in the tail.
        let head = if self.omitted_bytes() == 0 { &self.head[..] } else { &[] };
        let last = head.iter().chain(&self.tail).rev().take(LONGEST_CHARACTER).copied();
        let mut last: Vec<u8> = last.collect();
        last.reverse();
        let incomplete = last.split_off(last.len() - incomplete_at_end(&last));
        for _ in &incomplete {
            if self.tail.pop_back().is_none() {
                self.head.pop();
            }
        }
        self.total -= incomplete.len() as u64;
        incomplete
    }

    /// How many of `max_bytes` belong to the head: the same share as in the whole budget.
    fn head_share(&self, max_bytes: usize) -> usize {
        let all = self.head_budget + self.tail_budget;
        if max_bytes >= all {
            return self.head_budget;
        }
        // In 128 bits, because the product of two `usize` may overflow.
        let share = (max_bytes as u128 * self.head_budget as u128) / all as u128;
        usize::try_from(share).unwrap_or(max_bytes)
    }
}

/// Whether more bytes of a stream follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamRest {
    MoreFollows,
    Complete,
}

/// Bytes of the longest character in UTF-8.
const LONGEST_CHARACTER: usize = 4;

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Number of bytes at the end that begin a character and do not complete it.
fn incomplete_at_end(bytes: &[u8]) -> usize {
    let candidates = 1..=bytes.len().min(LONGEST_CHARACTER - 1);
    let is_incomplete = |bytes: &[u8]| std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none());
    let begins = |count: &usize| is_lead(bytes[bytes.len() - count]) && is_incomplete(&bytes[bytes.len() - count..]);
    candidates.into_iter().find(begins).unwrap_or(0)
}

/// Number of bytes at the start that belong to a character whose first byte is missing.
fn incomplete_at_start(bytes: &[u8]) -> usize {
    bytes.iter().take(LONGEST_CHARACTER - 1).take_while(|byte| is_continuation(**byte)).count()
}

/// Whether a character of several bytes begins with this byte.
fn is_lead(byte: u8) -> bool {
    byte >= 0b1100_0000
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn output_within_the_budget_is_complete_and_invalid_bytes_are_replaced() {
        let mut output = HeadTail::new(10);
        output.push("grün".as_bytes());
        assert_eq!(output.abridge(10), Abridged { text: "grün".into(), omitted_bytes: 0 });
        output.push(b" \xff!");
        assert_eq!(output.abridge(10).text, "grün \u{fffd}!");
    }

    #[test]
    fn a_character_at_a_cut_is_left_out_whole() {
        let mut output = HeadTail::new(6);
        output.push("aaé€éb".as_bytes());
        assert_eq!(output.abridge(6).text, "aa\n[... 5 bytes omitted ...]\néb");
        let mut output = HeadTail::new(100);
        output.push("€€€€".as_bytes());
        assert_eq!(output.abridge(10).text, "€\n[... 6 bytes omitted ...]\n€");
        assert_eq!(output.abridge(0).text, "[... 12 bytes omitted ...]");
    }

    #[test]
    fn an_incomplete_character_waits_for_its_other_bytes_unless_the_stream_is_complete() {
        let mut output = HeadTail::new(64);
        output.push(b"x\xe2\x82");
        assert_eq!(output.take(StreamRest::MoreFollows).abridge(64).text, "x");
        output.push(b"\xac");
        assert_eq!(output.take(StreamRest::MoreFollows).abridge(64).text, "€");
        output.push(b"\xe2");
        assert_eq!(
            output.take(StreamRest::Complete).abridge(64).text,
            "\u{fffd}",
            "no byte will complete the character"
        );
        assert_eq!(output.total_bytes(), 0);
    }

    fn pieces() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let text = "[a-é€😀\n]{0,12}".prop_map(String::into_bytes);
        let bytes = proptest::collection::vec(any::<u8>(), 0..12);
        proptest::collection::vec(prop_oneof![text, bytes], 0..12)
    }

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_the_pieces(pieces in pieces(), budget in 0_usize..40, max in 0_usize..60) {
            let mut in_pieces = HeadTail::new(budget);
            pieces.iter().for_each(|piece| in_pieces.push(piece));
            let mut at_once = HeadTail::new(budget);
            at_once.push(&pieces.concat());
            prop_assert_eq!(in_pieces.abridge(max), at_once.abridge(max));
            prop_assert_eq!(&in_pieces, &at_once);
        }

        #[test]
        fn kept_bytes_stay_within_the_budget_and_omitted_bytes_are_counted(pieces in pieces(), budget in 0_usize..40, max in 0_usize..60) {
            let mut output = HeadTail::new(budget);
            pieces.iter().for_each(|piece| output.push(piece));
            let total = pieces.concat().len();
            prop_assert!(output.kept_bytes() <= budget);
            prop_assert_eq!(output.omitted_bytes(), (total - output.kept_bytes()) as u64);
            prop_assert_eq!(output.omitted_bytes() == 0, total <= budget);
            let abridged = output.abridge(max);
            prop_assert!(total as u64 - abridged.omitted_bytes <= max.min(budget) as u64);
        }

        #[test]
        fn only_whole_characters_of_a_text_are_kept(text in "[a-é€😀]{0,40}", budget in 0_usize..40, max in 0_usize..60) {
            let mut output = HeadTail::new(budget);
            text.as_bytes().chunks(3).for_each(|piece| output.push(piece));
            let abridged = output.abridge(max);
            let has_replaced = abridged.text.contains(char::REPLACEMENT_CHARACTER);
            prop_assert!(!has_replaced);
            let marker = format!("[... {} bytes omitted ...]", abridged.omitted_bytes);
            if let Some((head, tail)) = abridged.text.split_once(&marker) {
                let (head, tail) = (head.trim_end_matches('\n'), tail.trim_start_matches('\n'));
                prop_assert!(text.starts_with(head) && text.ends_with(tail));
                prop_assert_eq!(head.len() + tail.len() + abridged.omitted_bytes as usize, text.len());
            } else {
                prop_assert_eq!(&abridged.text, &text);
            }
        }

        #[test]
        fn taken_parts_make_up_the_whole_text(text in "[a-é€😀]{0,40}", cut in 1_usize..5) {
            let mut output = HeadTail::new(1000);
            let mut seen = String::new();
            for piece in text.as_bytes().chunks(cut) {
                output.push(piece);
                seen += &output.take(StreamRest::MoreFollows).abridge(1000).text;
            }
            seen += &output.take(StreamRest::Complete).abridge(1000).text;
            prop_assert_eq!(seen, text);
        }
    }
}
