//! The flags for limits, and the text of `--help-limits`. Both are made from the server's list of limits, so a limit
//! that is added to the list gets a flag, an environment variable and a line of help without a change here.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::LazyLock;

use clap::{Arg, ArgMatches, Command, FromArgMatches};
use server::{ADJUSTABLE_LIMITS, Config, Limit, LimitUnit};

use crate::terminal_text::wrapped;
use crate::units::{SizeArg, TimeArg, parse_count};

/// The only limit that `--help` shows. The other limits are in `--help-limits` and in the manual, so that `--help`
/// fits a screen.
const LIMIT_IN_HELP: &str = "session_ttl";

/// Longest line of `--help-limits`, in columns.
const TEXT_WIDTH: usize = 100;
/// Columns of `--help-limits` that come before the sentences about a limit. They show its flag and its default.
const INDENT: usize = 41;

/// The definition of the flag for one limit. It owns the texts of the flag, which clap needs for as long as the
/// program runs.
struct LimitFlag {
    limit: &'static Limit,
    /// The flag without `--`, such as `max-wait`.
    name: String,
    /// The environment variable that sets the limit too, such as `EXEC_SERVER_MAX_WAIT`.
    variable: String,
    /// `None` if there is no limit by default.
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

/// The limits after the command line was parsed.
#[derive(Debug)]
pub(crate) struct LimitArgs {
    /// The settings of the server. Each limit has the value of its flag, of its environment variable, or else its
    /// default. `guard` and `sandbox_launcher` are no limits and are still `None`.
    pub(crate) config: Config,
}

impl clap::Args for LimitArgs {
    fn augment_args(command: Command) -> Command {
        command.args(FLAGS.iter().map(LimitFlag::argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LimitArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut limits = Self { config: Config::default() };
        limits.update_from_arg_matches(matches)?;
        Ok(limits)
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
            .hide(limit.name != LIMIT_IN_HELP)
    }
}

/// Parses a value for this limit. Returns the number in the unit of the limit. Fails if the text is no such value, or
/// if the value is too small.
fn parse(limit: &Limit, text: &str) -> Result<u64, String> {
    let number = match limit.unit {
        LimitUnit::Count => parse_count(text)? as u64,
        LimitUnit::Bytes => text.parse::<SizeArg>()?.0 as u64,
        LimitUnit::Milliseconds => text.parse::<TimeArg>()?.0.as_millis() as u64,
    };
    limit.check(number).map(|()| number).map_err(str::to_owned)
}

/// Changes the definition of the command line for the manual: the flags for limits get the heading `Limits`, and the
/// text of each flag also says what happens at its limit.
pub(crate) fn describe_limits(command: Command) -> Command {
    let limit_of = |argument: &Arg| ADJUSTABLE_LIMITS.iter().find(|limit| argument.get_id().as_str() == limit.name);
    command.mut_args(move |argument| match limit_of(&argument) {
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
    let mut out =
        String::from("Each limit can also be set by an environment variable, e.g. EXEC_SERVER_MAX_WAIT=5m.\n\n");
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
    fn help_limits_lists_only_limits_with_their_defaults_in_lines_of_limited_width() {
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
    fn retain_bytes_may_be_any_size_but_zero() {
        let retain = ADJUSTABLE_LIMITS.iter().find(|limit| limit.name == "retain_bytes").unwrap();
        assert_eq!((parse(retain, "1"), parse(retain, "2KiB")), (Ok(1), Ok(2048)));
        assert!(parse(retain, "0").is_err() && parse(retain, "0KiB").is_err());
    }
}
