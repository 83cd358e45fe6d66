//! Whether a command that failed was refused something by its sandbox. A refusal by a read-only mount or a mask is an
//! ordinary error for the kernel, which nobody else sees. So the words that the command wrote are the only sign of it.

/// A command that wrote one of these, in any case, and then failed, was probably refused something.
const TELLING_WORDS: [&[u8]; 7] = [
    b"operation not permitted",
    b"permission denied",
    b"read-only file system",
    b"seccomp",
    b"sandbox",
    b"landlock",
    b"failed to write file",
];

/// Without one of the words, these exit codes mean a mistake of the command: wrong arguments, a program that cannot be executed or does
/// not exist.
const OTHER_MISTAKES: [i32; 3] = [2, 126, 127];

/// The exit code of a command that the filter of system calls has ended: 128 + `SIGSYS`.
const ENDED_BY_FILTER: i32 = 128 + libc::SIGSYS;

/// Whether the exit code and the output of a sandboxed command suggest that the sandbox has refused something. `output` is what the command
/// wrote, in pieces, in order.
pub fn suggests_denial<'a>(code: i32, output: impl Iterator<Item = &'a [u8]>) -> bool {
    if code == 0 {
        return false;
    }
    if says_a_telling_word(output) {
        return true;
    }
    !OTHER_MISTAKES.contains(&code) && code == ENDED_BY_FILTER
}

fn says_a_telling_word<'a>(output: impl Iterator<Item = &'a [u8]>) -> bool {
    let longest = TELLING_WORDS.iter().map(|word| word.len()).max().unwrap_or(0);
    // The end of the piece before, because a word can continue in the next piece.
    let mut text: Vec<u8> = Vec::new();
    for piece in output {
        let kept = text.len().saturating_sub(longest - 1);
        text.drain(..kept);
        text.extend(piece.iter().map(u8::to_ascii_lowercase));
        if TELLING_WORDS.iter().any(|word| contains(&text, word)) {
            return true;
        }
    }
    false
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    let Some((first, rest)) = word.split_first() else { return true };
    let mut left = text;
    while let Some(at) = left.iter().position(|byte| byte == first) {
        left = &left[at + 1..];
        if left.starts_with(rest) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(code: i32, pieces: &[&str]) -> bool {
        suggests_denial(code, pieces.iter().map(|piece| piece.as_bytes()))
    }

    #[test]
    fn a_failed_command_that_says_a_telling_word_was_denied() {
        assert!(denied(1, &["touch: cannot touch 'x': Read-only file system\n"]));
        assert!(denied(2, &["ls: cannot open directory 'x': PERMISSION DENIED\n"]));
        assert!(denied(126, &["sh: Operation not permitted"]));
        assert!(!denied(0, &["Read-only file system"]), "it has succeeded");
        assert!(!denied(1, &["no such file"]));
        assert!(!denied(1, &[]));
    }

    #[test]
    fn a_word_may_be_cut_into_pieces() {
        assert!(denied(1, &["x", "read-only", " file", " syst", "em"]));
        assert!(denied(1, &["ssandbo", "x"]));
        assert!(!denied(1, &["read-only", " files", "ystem"]));
        let pieces: Vec<String> = "say Permission Denied!".chars().map(String::from).collect();
        assert!(denied(1, &pieces.iter().map(String::as_str).collect::<Vec<_>>()));
    }

    #[test]
    fn a_command_that_the_filter_has_ended_was_denied() {
        assert!(denied(159, &[]));
        assert!(!denied(137, &[]));
    }
}
