//! `--help-limits`: every limit with its flag, default and meaning.

use std::io::{self, Write as _};

use clap::CommandFactory as _;

use crate::args::{Args, LIMITS};

/// To stdout. A reader that has closed the pipe is no error.
pub(crate) fn print() -> io::Result<()> {
    let mut stdout = io::stdout();
    match stdout.write_all(render().as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn render() -> String {
    let command = Args::command();
    let limits = command.get_arguments().filter(|argument| {
        argument.get_help_heading() == Some(LIMITS)
            || ["session_ttl", "retain_bytes", "retain_total_bytes"].contains(&argument.get_id().as_str())
    });
    let mut out = String::from("Each can also be set by an environment variable, e.g. EXEC_SERVER_MAX_WAIT=5m.\n\n");
    for argument in limits {
        let flag = argument.get_long().unwrap_or_default();
        let default = argument.get_default_values().first().map_or("off".into(), |value| value.to_string_lossy());
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        out.push_str(&format!("  --{flag:<22} {default:>7}   {help}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_flags_with_defaults() {
        let text = render();
        assert!(text.contains("--max-message-bytes"), "{text}");
        assert!(text.contains("64MiB"), "{text}");
        assert!(text.contains("--session-ttl"), "{text}");
        assert!(!text.contains("--listen"), "{text}");
    }
}
