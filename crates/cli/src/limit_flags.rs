//! The flags for limits, and `--help-limits`. Both are made from the server's list of limits, so a limit that is added to the list gets a
//! flag, an environment variable and a line of help without a change here.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::LazyLock;

use clap::{Arg, ArgMatches, Command, FromArgMatches};
use server::{ADJUSTABLE_LIMITS, Config, Limit, LimitUnit};

use crate::terminal_text::wrapped;
use crate::units::{SizeArg, TimeArg, count};

/// The limit that `--help` shows. The others are shown by `--help-limits` and the manual only, so that `--help` fits a screen.
const IN_HELP: &str = "session_ttl";

/// Columns of the text in `--help-limits`.
const TEXT_WIDTH: usize = 100;
/// Columns in front of the sentences about a limit, for its flag and its default.
const INDENT: usize = 41;

/// The flag for a limit. It owns the texts of the flag, which clap needs for as long as the program runs.
struct LimitFlag {
    limit: &'static Limit,
    name: String,
    variable: String,
    default: Option<String>,
}

static FLAGS: LazyLock<Vec<LimitFlag>> = LazyLock::new(|| {
    let flag = |limit: &'static Limit| LimitFlag {
        limit,
        name: limit.name.replace('_', "-"),
        variable: format!("EXEC_SERVER_{}", limit.name.to_uppercase()),
        default: limit.default_value().map(|value| value.to_string()),
    };
    ADJUSTABLE_LIMITS.iter().map(flag).collect()
});

/// The values of all flags and variables for limits.
#[derive(Debug)]
pub(crate) struct LimitFlags {
    /// The settings of the server, with the limits in them and without a guard.
    pub(crate) config: Config,
}

impl clap::Args for LimitFlags {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(LimitFlag::argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LimitFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self { config: Config::default() };
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for limit in ADJUSTABLE_LIMITS {
            if let Some(number) = matches.get_one::<u64>(limit.name) {
                limit.apply(&mut self.config, *number);
            }
        }
        Ok(())
    }
}

impl LimitFlag {
    fn argument(&'static self) -> Arg {
        let limit = self.limit;
        Arg::new(limit.name)
            .long(self.name.as_str())
            .env(self.variable.as_str())
            .hide_env(true)
            .value_name(match limit.unit {
                LimitUnit::Count => "COUNT",
                LimitUnit::Bytes => "SIZE",
                LimitUnit::Milliseconds => "TIME",
            })
            .help(limit.help.trim_end_matches('.'))
            .value_parser(|text: &str| parse(limit, text))
            .default_value(self.default.as_deref())
            .hide(limit.name != IN_HELP)
    }
}

/// Parses a value in the unit of the limit, and checks that the limit may have it.
fn parse(limit: &Limit, text: &str) -> Result<u64, String> {
    let number = match limit.unit {
        LimitUnit::Count => count(text)? as u64,
        LimitUnit::Bytes => text.parse::<SizeArg>()?.0 as u64,
        LimitUnit::Milliseconds => text.parse::<TimeArg>()?.0.as_millis() as u64,
    };
    limit.check(number).map(|()| number).map_err(str::to_owned)
}

/// The same command line with every limit under a heading of its own, and with the whole text about each limit.
pub(crate) fn show_all(command: Command) -> Command {
    let is_limit = |argument: &Arg| ADJUSTABLE_LIMITS.iter().find(|limit| argument.get_id().as_str() == limit.name);
    command.mut_args(move |argument| match is_limit(&argument) {
        Some(limit) => argument.help_heading("Limits").long_help(format!("{} {}", limit.help, limit.at_limit)),
        None => argument,
    })
}

/// Prints `--help-limits`. If the reader of stdout has closed the pipe, that is not an error.
pub(crate) fn print() -> io::Result<()> {
    let mut stdout = io::stdout();
    match stdout.write_all(render().as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

fn render() -> String {
    let mut out = String::from("Each can also be set by an environment variable, e.g. EXEC_SERVER_MAX_WAIT=5m.\n\n");
    for LimitFlag { limit, name, default, .. } in FLAGS.iter() {
        let default = default.as_deref().unwrap_or("off");
        let sentences = wrapped(&format!("{} {}", limit.help, limit.at_limit), INDENT, INDENT, TEXT_WIDTH);
        let _ = writeln!(out, "  --{name:<26} {default:>7}   {sentences}");
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
        assert_eq!(text.lines().find(|line| line.chars().count() > TEXT_WIDTH), None);
    }

    #[test]
    fn the_default_of_a_flag_is_the_default_of_the_server() {
        for flag in FLAGS.iter() {
            let number = flag.default.as_deref().map(|text| parse(flag.limit, text).unwrap());
            assert_eq!(number, flag.limit.default_value().map(|value| value.number), "--{}", flag.name);
        }
    }

    #[test]
    fn no_output_that_is_retained_is_refused() {
        let retain = ADJUSTABLE_LIMITS.iter().find(|limit| limit.name == "retain_bytes").unwrap();
        assert_eq!((parse(retain, "1"), parse(retain, "2KiB")), (Ok(1), Ok(2048)));
        assert!(parse(retain, "0").is_err() && parse(retain, "0KiB").is_err());
    }
}
