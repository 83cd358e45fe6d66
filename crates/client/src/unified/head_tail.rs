//! The beginning and the end of an output of any length, within a bound. A value: what is kept depends on the bytes alone, not on how they
//! were cut into pieces.

use std::collections::VecDeque;

/// Keeps the first and the last bytes of a stream and counts what lies between them.
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
    head_budget: usize,
    tail_budget: usize,
    total: u64,
}

/// Output as text, shortened in the middle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abridged {
    /// Head and tail with a line between them that tells how much is left out, or everything. What is not UTF-8 is replaced.
    pub text: String,
    /// How many bytes of the output are not in it.
    pub omitted_bytes: u64,
}

impl HeadTail {
    /// Half of the budget for each end.
    pub fn new(budget: usize) -> Self {
        Self::with_budgets(budget / 2, budget - budget / 2)
    }

    /// So much of the beginning and so much of the end.
    ///
    /// ```
    /// let mut last_words = client::HeadTail::with_budgets(0, 3);
    /// last_words.push(b"only the end");
    /// assert_eq!(last_words.abridge(3).text, "[... 9 bytes omitted ...]\nend");
    /// ```
    pub fn with_budgets(head: usize, tail: usize) -> Self {
        Self { head_budget: head, tail_budget: tail, ..Self::default() }
    }

    /// The stream goes on with these bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.head_budget - self.head.len();
        let (to_head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(to_head);
        // Of much at once only the end can stay.
        let rest = &rest[rest.len().saturating_sub(self.tail_budget)..];
        let superfluous = (self.tail.len() + rest.len()).saturating_sub(self.tail_budget);
        self.tail.drain(..superfluous);
        self.tail.extend(rest);
    }

    /// How long the stream was.
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    /// How much of it is held.
    pub fn kept_bytes(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// How much of it is gone.
    pub fn omitted_bytes(&self) -> u64 {
        self.total - self.kept_bytes() as u64
    }

    /// As text with at most `max_bytes` of the stream, the omission marker not counted. No character is cut: what a cut leaves of one
    /// counts as left out.
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
        let [above, below] = [&head[..], tail].map(|end| if end.is_empty() { "" } else { "\n" });
        let marker = format!("{above}[... {omitted_bytes} bytes omitted ...]{below}");
        Abridged { text: lossy(&head) + &marker + &lossy(tail), omitted_bytes }
    }

    /// Takes what came so far; what comes next begins a new head. With [`Ending::More`] the first bytes of a character whose rest has not
    /// come yet stay here.
    pub(crate) fn take(&mut self, ending: Ending) -> Self {
        let mut taken = std::mem::replace(self, Self::with_budgets(self.head_budget, self.tail_budget));
        if ending == Ending::More {
            self.push(&taken.remove_incomplete_end());
        }
        taken
    }

    fn remove_incomplete_end(&mut self) -> Vec<u8> {
        // What lies before a hole is not the beginning of what lies after it.
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

    /// How the two ends share a smaller budget: as they share their own.
    fn head_share(&self, max_bytes: usize) -> usize {
        let all = self.head_budget + self.tail_budget;
        if max_bytes >= all {
            return self.head_budget;
        }
        // In 128 bits, because the product of two sizes may not fit into one.
        let share = (max_bytes as u128 * self.head_budget as u128) / all as u128;
        usize::try_from(share).unwrap_or(max_bytes)
    }
}

/// Whether a stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    More,
    Last,
}

/// Bytes of the longest UTF-8 character.
const LONGEST_CHARACTER: usize = 4;

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// How many bytes at the end begin a character that is not complete.
fn incomplete_at_end(bytes: &[u8]) -> usize {
    let candidates = 1..=bytes.len().min(LONGEST_CHARACTER - 1);
    let is_incomplete = |bytes: &[u8]| std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none());
    let begins = |count: &usize| is_lead(bytes[bytes.len() - count]) && is_incomplete(&bytes[bytes.len() - count..]);
    candidates.into_iter().find(begins).unwrap_or(0)
}

/// How many bytes at the start belong to a character that began before.
fn incomplete_at_start(bytes: &[u8]) -> usize {
    bytes.iter().take(LONGEST_CHARACTER - 1).take_while(|byte| is_continuation(**byte)).count()
}

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
    fn what_fits_is_whole() {
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
    fn half_a_character_waits_for_its_other_half() {
        let mut output = HeadTail::new(64);
        output.push(b"x\xe2\x82");
        assert_eq!(output.take(Ending::More).abridge(64).text, "x");
        output.push(b"\xac");
        assert_eq!(output.take(Ending::More).abridge(64).text, "€");
        output.push(b"\xe2");
        assert_eq!(output.take(Ending::Last).abridge(64).text, "\u{fffd}", "nothing will complete it");
        assert_eq!(output.total_bytes(), 0);
    }

    fn pieces() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let text = "[a-é€😀\n]{0,12}".prop_map(String::into_bytes);
        let bytes = proptest::collection::vec(any::<u8>(), 0..12);
        proptest::collection::vec(prop_oneof![text, bytes], 0..12)
    }

    proptest! {
        #[test]
        fn how_it_was_cut_changes_nothing(pieces in pieces(), budget in 0_usize..40, max in 0_usize..60) {
            let mut in_pieces = HeadTail::new(budget);
            pieces.iter().for_each(|piece| in_pieces.push(piece));
            let mut at_once = HeadTail::new(budget);
            at_once.push(&pieces.concat());
            prop_assert_eq!(in_pieces.abridge(max), at_once.abridge(max));
            prop_assert_eq!(&in_pieces, &at_once);
        }

        #[test]
        fn it_stays_within_its_budget_and_counts_the_rest(pieces in pieces(), budget in 0_usize..40, max in 0_usize..60) {
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
        fn of_text_only_whole_characters_are_kept(text in "[a-é€😀]{0,40}", budget in 0_usize..40, max in 0_usize..60) {
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
        fn what_is_taken_in_parts_is_the_whole(text in "[a-é€😀]{0,40}", cut in 1_usize..5) {
            let mut output = HeadTail::new(1000);
            let mut seen = String::new();
            for piece in text.as_bytes().chunks(cut) {
                output.push(piece);
                seen += &output.take(Ending::More).abridge(1000).text;
            }
            seen += &output.take(Ending::Last).abridge(1000).text;
            prop_assert_eq!(seen, text);
        }
    }
}
