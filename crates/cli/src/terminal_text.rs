//! Makes text safe and readable for a terminal: errors become one line, escape sequences become visible, and long
//! lines are broken. This module prints nothing itself.

/// The text with visible escapes in place of characters that would move the cursor, change colours, begin another
/// line or turn the direction of writing. Errors, names and ids of a server pass through here before a terminal shows
/// them.
pub(crate) fn readable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if is_unsafe(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
        shown
    })
}

/// As [`readable`], but at most `most` characters, escapes included. `…` stands for a rest that was cut off.
pub(crate) fn readable_beginning(text: &str, most: usize) -> String {
    let mut shown = String::new();
    let mut length = 0;
    for c in text.chars() {
        let next = readable(c.encode_utf8(&mut [0; 4]));
        length += next.chars().count();
        if length > most {
            shown.push('…');
            break;
        }
        shown += &next;
    }
    shown
}

/// A line of JSON. Characters that would act on a terminal are escaped. A parser reads the same value.
pub(crate) fn json_line(value: &serde_json::Value) -> String {
    // The escaped characters can occur only inside of JSON strings, and four hexadecimal digits suffice for all of
    // them.
    let text = value.to_string();
    let mut line = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if is_unsafe(c) {
            line += &format!("\\u{:04x}", u32::from(c));
        } else {
            line.push(c);
        }
    }
    line.push('\n');
    line
}

/// Whether a terminal acts on a character instead of showing it.
fn is_unsafe(c: char) -> bool {
    c.is_control() || turns_direction(c)
}

/// Whether a character changes the direction of the text around it. Such a character can make one name look like
/// another.
fn turns_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Breaks a text between words into lines of at most `width` columns. A longer word is not broken. The caller prints
/// the first line at column `start`; each further line begins with `indent` spaces.
pub(crate) fn wrapped(text: &str, start: usize, indent: usize, width: usize) -> String {
    let mut out = String::new();
    let mut column = start;
    let mut is_first = true;
    for word in text.split(' ') {
        let length = word.chars().count();
        if is_first {
            is_first = false;
        } else if column + 1 + length > width {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

/// One line for an error and its causes.
pub(crate) fn error_line(error: &anyhow::Error) -> String {
    let mut causes = error.chain().map(|cause| without_os_error_number(&cause.to_string()).to_owned());
    let first = causes.next().unwrap_or_default();
    // The texts of some errors end with the text of their cause, which is not repeated then.
    let whole =
        causes.fold(
            first,
            |sentence, cause| {
                if sentence.ends_with(&cause) { sentence } else { format!("{sentence}: {cause}") }
            },
        );
    readable(&whole)
}

/// The text without the ` (os error 2)` that the standard library appends to the message of the operating system.
pub(crate) fn without_os_error_number(text: &str) -> &str {
    let words = text.strip_suffix(')').and_then(|text| text.rsplit_once(" (os error "));
    match words {
        Some((words, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => words,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn escape_sequences_become_visible() {
        assert_eq!(readable("a\x1b[31m\r\n\u{9b}2J\u{7f}é"), "a\\u{1b}[31m\\r\\n\\u{9b}2J\\u{7f}é");
    }

    #[test]
    fn marks_that_turn_the_direction_of_writing_become_visible() {
        assert_eq!(readable("a\u{202e}txt.exe"), "a\\u{202e}txt.exe");
        for c in "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{2066}\u{2067}\u{2068}\u{2069}".chars() {
            assert_eq!(readable(&c.to_string()), c.escape_default().to_string());
        }
        assert_eq!(
            readable("\u{5d0}\u{200d}"),
            "\u{5d0}\u{200d}",
            "letters that are written from right to left stay"
        );
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_escapes() {
        assert_eq!(readable_beginning("äbc", 3), "äbc");
        assert_eq!(readable_beginning("äbcd", 3), "äbc…");
        assert_eq!(readable_beginning("a\x1b[", 7), "a\\u{1b}…");
        assert_eq!(readable_beginning("a\x1b[", 6), "a…");
    }

    #[test]
    fn a_text_is_broken_between_words() {
        assert_eq!(wrapped("one two three", 0, 2, 7), "one two\n  three");
        assert_eq!(wrapped("  one two", 0, 4, 6), "  one\n    two");
        assert_eq!(wrapped("one two", 5, 5, 8), "one\n     two");
        assert_eq!(wrapped("", 0, 2, 7), "");
    }

    #[test]
    fn a_json_line_escapes_characters_that_act_on_a_terminal_and_keeps_its_value() {
        let value = serde_json::json!({"a\u{9b}": "é\u{1b}[1m\u{7f}\u{202e}\n"});
        let line = json_line(&value);
        assert_eq!(line, "{\"a\\u009b\":\"é\\u001b[1m\\u007f\\u202e\\n\"}\n");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), value);
    }

    #[test]
    fn an_error_line_names_each_cause_once_and_no_os_error_number() {
        let missing = || std::io::Error::from_raw_os_error(2);
        let error = Err::<(), _>(missing()).context("cannot read x").context("nothing was done").unwrap_err();
        assert_eq!(error_line(&error), "nothing was done: cannot read x: No such file or directory");
        let with_repeated_cause = anyhow::Error::new(missing()).context(format!("cannot read x: {}", missing()));
        assert_eq!(error_line(&with_repeated_cause), "cannot read x: No such file or directory");
        assert_eq!(without_os_error_number("in a file (os error two)"), "in a file (os error two)");
    }
}
