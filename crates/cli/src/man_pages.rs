//! Makes the manual pages from the definition of the command line, so that the pages name every flag. The pages are
//! roff source in memory; this module knows neither files nor terminals. Start reading at [`all`].

use std::io::Write;

use clap::{Arg, Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::Args;
use crate::limit_flags;

/// The section of the manual for commands of users.
const SECTION: &str = "1";

/// The title of the whole manual, which stands at the top of each page.
const MANUAL: &str = "exec-server manual";

/// The pages have no date, so that the same sources make the same pages. The date is a space, because clap_mangen
/// would write nothing for an empty date, and roff would take the next argument for the date.
const NO_DATE: &str = " ";

/// One page of the manual.
pub(crate) struct ManPage {
    /// The command that the page is about, such as `run` or `sandbox-explain`. `None` for the program itself.
    pub(crate) command: Option<String>,
    /// The name under which `man` looks for the file, such as `exec-server-run.1`.
    pub(crate) file_name: String,
    /// The page in roff.
    pub(crate) text: String,
}

/// The page of the program, and then one page for each command and for each command in a command.
pub(crate) fn all() -> Vec<ManPage> {
    let program = limit_flags::describe_limits(Args::command()).mut_args(show).subcommand_help_heading("COMMANDS");
    let show_flags = |command: Command| command.mut_args(show);
    let mut program = program.mut_subcommands(|command| show_flags(command).mut_subcommands(show_flags));
    program.build();
    let commands = program.get_subcommands().flat_map(|command| {
        let nested = command
            .get_subcommands()
            .map(|nested| page(nested.clone(), Some(format!("{}-{}", command.get_name(), nested.get_name()))));
        std::iter::once(page(command.clone(), Some(command.get_name().to_owned()))).chain(nested)
    });
    std::iter::once(page(program.clone(), None)).chain(commands).collect()
}

/// Makes a flag visible that `--help` leaves out for lack of room.
fn show(flag: Arg) -> Arg {
    flag.hide(false).hide_short_help(false)
}

fn page(command: Command, name: Option<String>) -> ManPage {
    let title = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let help = HelpText::parse(&command.get_after_help().map(ToString::to_string).unwrap_or_default());
    let synopsis = synopsis(&command.clone().render_usage().to_string());
    let description = description(&command, &help);
    let has_commands = command.has_subcommands();
    let version = format!("exec-server {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command).title(&title).section(SECTION).date(NO_DATE).source(version).manual(MANUAL);

    let mut text = rendered(|out| man.render_title(out));
    text += &layout().to_roff();
    text += &rendered(|out| man.render_name_section(out));
    text += &synopsis.to_roff();
    text += &description.to_roff();
    text += &rendered(|out| man.render_options_section(out)).replace(".SH LIMITS\n", &limits_heading().to_roff());
    if has_commands {
        text += &rendered(|out| man.render_subcommands_section(out));
    }
    if name.is_none() {
        text += &program_sections().to_roff();
    }
    text += &help.sections().to_roff();
    text += &see_also(name.as_deref()).to_roff();
    ManPage { command: name, file_name: format!("{title}.{SECTION}"), text: text.lines().map(typeset).collect() }
}

/// A part of a page that clap_mangen writes. clap_mangen writes `\*(Aq` for an apostrophe, and begins each part with
/// lines that define it. This function writes plain apostrophes and removes those lines.
fn rendered(part: impl Fn(&mut dyn Write) -> std::io::Result<()>) -> String {
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _impossible_error = part(&mut text);
    let text = String::from_utf8_lossy(&text).replace(r"\*(Aq", "'");
    text.strip_prefix(&Roff::new().render()).unwrap_or(&text).to_owned()
}

/// The line with text in backquotes in bold, and with escapes for the characters `'`, `~` and `^`, for which roff
/// would print typographic variants. A line that begins with `.` is a request to roff, and stays as it is.
fn typeset(line: &str) -> String {
    if line.starts_with('.') {
        return format!("{line}\n");
    }
    let mut is_quoted = false;
    let mut text = String::with_capacity(line.len() + 1);
    for c in line.chars() {
        match c {
            '`' => {
                is_quoted = !is_quoted;
                text.push_str(if is_quoted { r"\fB" } else { r"\fR" });
            }
            '\'' => text.push_str(r"\(aq"),
            '~' => text.push_str(r"\(ti"),
            '^' => text.push_str(r"\(ha"),
            c => text.push(c),
        }
    }
    text.push('\n');
    text
}

/// Roff requests that turn off justified text and hyphenation. A reader could take a hyphen at the end of a line for
/// a part of a flag.
fn layout() -> Roff {
    let mut roff = Roff::new();
    roff.control("nh", []).control("ad", ["l"]);
    roff
}

/// The section DESCRIPTION: the long description if there is one, otherwise the short one and the paragraphs of the
/// help text.
fn description(command: &Command, help: &HelpText) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["DESCRIPTION"]);
    match command.get_long_about() {
        Some(text) => paragraphs(&mut roff, text.to_string().lines().filter(|line| !line.is_empty())),
        None => {
            let about = command.get_about().map(|about| format!("{about}.")).unwrap_or_default();
            paragraphs(&mut roff, std::iter::once(about.as_str()).chain(help.paragraphs.iter().map(String::as_str)));
        }
    }
    roff
}

fn paragraphs<'a>(roff: &mut Roff, paragraphs: impl Iterator<Item = &'a str>) {
    for (number, paragraph) in paragraphs.enumerate() {
        if number > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(paragraph)]);
    }
}

fn limits_heading() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["LIMITS"]).text([roman(
        "A SIZE is a number of bytes, or has a unit: KiB, MiB, GiB, KB, MB or GB. A TIME has a unit: ms, s, m, h or d. Limits that no \
         flag changes are in the documentation of the project, docs/limits.md.",
    )]);
    roff
}

fn synopsis(usage: &str) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for (number, form) in usage.trim_start_matches("Usage:").lines().map(str::trim).enumerate() {
        if number > 0 {
            roff.control("br", []);
        }
        let words = form.split(' ').take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase())).count();
        let (name, rest) = split_words(form, words);
        roff.text([bold(name), roman(rest)]);
    }
    roff
}

/// Splits a text after its first `words` words, at least one.
fn split_words(text: &str, words: usize) -> (&str, &str) {
    text.match_indices(' ').nth(words - 1).map_or((text, ""), |(space, _)| text.split_at(space))
}

/// The sections ENVIRONMENT and FILES, which only the page of the program has.
fn program_sections() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["ENVIRONMENT"]);
    for (variables, text) in [
        (
            "EXEC_SERVER_LISTEN, EXEC_SERVER_TOKEN_FILE and so on",
            "Every flag of the server can be set by a variable: EXEC_SERVER_ and the name of the flag in capitals, with _ for -. A \
             flag that is given takes precedence. Commands do not read these variables. No variable makes a server an executor, so \
             --remote, --environment-id, --name, --identity-file and --use-agent-identity-auth have none.",
        ),
        ("EXEC_SERVER_URL", "The server that commands connect to if there is no environments.toml."),
        ("EXEC_SERVER_HOME", "A directory in which environments.toml is looked for first."),
        ("NO_COLOR", "If it is set and not empty, nothing is coloured."),
        (
            "RUST_LOG",
            "Which messages are logged to stderr: error, warn (the default of a server), info, debug or trace.",
        ),
    ] {
        roff.control("TP", []).text([bold(variables)]).text([roman(text)]);
    }
    roff.control("SH", ["FILES"]);
    for (file, text) in [
        (
            "$XDG_CONFIG_HOME/exec-server/environments.toml, ~/.config/exec-server/environments.toml",
            "The environments that commands can choose with -e. The documentation of the project, docs/environments.md, describes \
             the file and the other directories in which it is looked for; `exec-server env` prints which file is used.",
        ),
        (
            "$XDG_STATE_HOME/exec-server, ~/.local/state/exec-server",
            "The names of kept sessions, and the socket and the log of the server that is started in the background for them.",
        ),
    ] {
        roff.control("TP", []).text([bold(file)]).text([roman(text)]);
    }
    roff
}

fn see_also(command: Option<&str>) -> Roff {
    let mut roff = Roff::new();
    if command.is_some() {
        roff.control("SH", ["SEE ALSO"]).text([bold("exec-server"), roman("(1)")]);
    }
    roff
}

/// The parts of the text that `--help` shows below the flags.
#[derive(Debug, Default, PartialEq, Eq)]
struct HelpText {
    paragraphs: Vec<String>,
    /// Each heading, such as `Exit codes`, with the indented lines below it.
    lists: Vec<(String, Vec<String>)>,
}

impl HelpText {
    fn parse(text: &str) -> Self {
        let mut help = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            match (line.strip_prefix("  "), help.lists.last_mut()) {
                (Some(item), Some((_, items))) => items.push(item.to_owned()),
                (_, _) if line.ends_with(':') => help.lists.push((line.trim_end_matches(':').to_owned(), Vec::new())),
                (_, _) => help.paragraphs.push(line.to_owned()),
            }
        }
        help
    }

    fn sections(&self) -> Roff {
        let mut roff = Roff::new();
        for (heading, items) in &self.lists {
            match heading.as_str() {
                "Exit codes" => {
                    roff.control("SH", ["EXIT STATUS"]);
                    for item in items {
                        let (code, meaning) = item.split_once("  ").unwrap_or((item, ""));
                        roff.control("TP", []).text([bold(code)]).text([roman(meaning.trim_start())]);
                    }
                }
                _ => {
                    roff.control("SH", ["EXAMPLES"]).control("nf", []);
                    for item in items {
                        roff.text([roman(item)]);
                    }
                    roff.control("fi", []);
                }
            }
        }
        roff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_in_ascii_that_names_all_its_flags() {
        let mut program = Args::command();
        program.build();
        let pages = all();
        let with_nested = |command| std::iter::once(command).chain(Command::get_subcommands(command));
        let commands: Vec<&Command> =
            std::iter::once(&program).chain(program.get_subcommands().flat_map(with_nested)).collect();
        assert_eq!(pages.len(), commands.len());
        for (command, page) in commands.into_iter().zip(&pages) {
            assert!(page.text.is_ascii(), "{}", page.file_name);
            for flag in command.get_arguments().filter_map(Arg::get_long) {
                let written = format!("\\-\\-{}", flag.replace('-', "\\-"));
                assert!(page.text.contains(&written), "--{flag} is missing in {}", page.file_name);
            }
        }
    }

    #[test]
    fn a_help_text_becomes_paragraphs_and_sections() {
        let help = HelpText::parse("One.\n\nTwo.\n\nExit codes:\n  0  fine\n\nExample:\n  x --y");
        assert_eq!(help.paragraphs, ["One.", "Two."]);
        let sections = help.sections().to_roff();
        assert_eq!(sections, ".SH \"EXIT STATUS\"\n.TP\n\\fB0\\fR\nfine\n.SH EXAMPLES\n.nf\nx \\-\\-y\n.fi\n");
    }

    #[test]
    fn text_is_typeset_with_bold_and_escapes_and_a_request_to_roff_stays_as_it_is() {
        assert_eq!(typeset("press `~.` in the server's shell"), "press \\fB\\(ti.\\fR in the server\\(aqs shell\n");
        assert_eq!(typeset(".SH `x`"), ".SH `x`\n");
    }

    #[test]
    fn every_heading_of_a_help_text_has_a_section_in_the_page_and_lines_below_it() {
        let program = Args::command();
        let nested = program.get_subcommands().flat_map(Command::get_subcommands);
        for command in program.get_subcommands().chain(nested) {
            let help = HelpText::parse(&command.get_after_help().map(ToString::to_string).unwrap_or_default());
            for (heading, items) in help.lists {
                assert!(["Exit codes", "Example", "Examples"].contains(&heading.as_str()), "{heading}");
                assert!(!items.is_empty(), "{heading} of {}", command.get_name());
            }
        }
    }
}
