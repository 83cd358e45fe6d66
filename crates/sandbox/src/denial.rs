//! Guesses whether a command failed because its sandbox refused something. When a mount refuses an access, only the command gets
//! the error. So the server searches the output of the command for the usual error messages.

/// A command that wrote one of these texts and then failed was probably refused something. Upper and lower case are the same.
const DENIAL_MESSAGES: [&[u8]; 8] = [
    b"operation not permitted",
    b"permission denied",
    b"read-only file system",
    b"seccomp",
    b"sandbox",
    b"landlock",
    b"failed to write file",
    // A protected or denied path that a command wants to remove or rename.
    b"device or resource busy",
];

/// The exit code of a command that its seccomp filter has killed: 128 + `SIGSYS`.
const ENDED_BY_FILTER: i32 = 128 + libc::SIGSYS;

/// Whether the exit code and the output of a sandboxed command suggest that the sandbox has refused something. `output` is what the command
/// wrote, in pieces, in order.
pub fn suggests_denial<'a>(code: i32, output: impl Iterator<Item = &'a [u8]>) -> bool {
    if code == 0 {
        return false;
    }
    code == ENDED_BY_FILTER || contains_denial_message(output)
}

fn contains_denial_message<'a>(output: impl Iterator<Item = &'a [u8]>) -> bool {
    let longest = DENIAL_MESSAGES.iter().map(|message| message.len()).max().unwrap_or(0);
    // The end of the piece before, because a message can continue in the next piece.
    let mut text: Vec<u8> = Vec::new();
    for piece in output {
        let kept = text.len().saturating_sub(longest - 1);
        text.drain(..kept);
        text.extend(piece.iter().map(u8::to_ascii_lowercase));
        if DENIAL_MESSAGES.iter().any(|message| contains(&text, message)) {
            return true;
        }
    }
    false
}

fn contains(text: &[u8], searched: &[u8]) -> bool {
    let Some((first, rest)) = searched.split_first() else { return true };
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
    fn a_failed_command_with_a_denial_message_was_denied() {
        assert!(denied(1, &["touch: cannot touch 'x': Read-only file system\n"]));
        assert!(denied(2, &["ls: cannot open directory 'x': PERMISSION DENIED\n"]));
        assert!(denied(126, &["sh: Operation not permitted"]));
        assert!(!denied(0, &["Read-only file system"]), "it has succeeded");
        assert!(!denied(1, &["no such file"]));
        assert!(!denied(1, &[]));
    }

    #[test]
    fn a_message_may_be_cut_into_pieces() {
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
