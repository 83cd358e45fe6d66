//! Checks the tour of the README, which is all its `console` blocks: a shell runs all commands of the tour, and each
//! command must print what the README shows.

use std::path::Path;
use std::process::Stdio;

const README: &str = include_str!("../../../README.md");

/// Printed after each command, so that the output can be split.
const SEPARATOR: &str = "==== next command ====\n";

/// First lines of the script. They join stderr with stdout, and make the shell kill its background jobs when it ends.
const PREPARE: &str = "exec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n";

/// A command of the README, and the lines that the README shows as its output.
#[derive(Debug, Default, PartialEq, Eq)]
struct TourStep {
    command: String,
    printed: Vec<String>,
}

#[tokio::test]
async fn the_tour_prints_what_the_readme_says() {
    let folder = tempfile::tempdir().unwrap();
    let [client] = blocks("python").try_into().expect("the README has one Python block, the client");
    std::fs::write(folder.path().join("client.py"), client).unwrap();
    let steps: Vec<TourStep> = blocks("console").iter().flat_map(|block| steps(block)).collect();
    assert!(steps.len() > 10, "the tour was not found");

    let mut script = PREPARE.to_owned();
    for step in &steps {
        script.push_str(&format!("{}\nprintf '{}'\n", repeat_until_found(&step.command), SEPARATOR.escape_debug()));
    }
    let shown = run(folder.path(), &script).await;
    let mut outputs = shown.split(SEPARATOR);
    for step in &steps {
        let printed = outputs.next().unwrap_or_default();
        let expected = step.printed.join("\n");
        assert!(fits(&expected, printed.trim_end()), "{}\nprinted:\n{printed}\nexpected:\n{expected}", step.command);
    }
}

#[test]
fn commands_may_have_several_lines_and_an_ellipsis_matches_any_text() {
    let expected = [
        TourStep { command: "cat <<X\na\n\nX".into(), printed: vec!["a".into(), "".into()] },
        TourStep { command: "true".into(), printed: vec![] },
    ];
    assert_eq!(steps("$ cat <<X\n> a\n>\n> X\na\n\n$ true\n"), expected);
    assert!(fits("a…c\n…", "abbc\nd\ne") && fits("a", "a") && fits("…", ""));
    assert!(!fits("a…c", "abbcd") && !fits("a", "ab") && !fits("", "a") && !fits("a…a", "a"));
}

/// Makes a command that searches the log repeat until it finds the line, for at most 10 s. The server writes its log
/// on a thread of its own, so a line may appear a moment after the event that it reports. Other commands are not
/// changed.
fn repeat_until_found(command: &str) -> String {
    if command.ends_with(" server.log") && command.starts_with("grep ") {
        format!("for attempt in {{1..200}}; do {command} && break; sleep 0.05; done")
    } else {
        command.to_owned()
    }
}

/// Runs a script with the binary on the `PATH`, and returns its output.
async fn run(folder: &Path, script: &str) -> String {
    let binary = testkit::binary();
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let folders = binary.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(&inherited));
    let path = std::env::join_paths(folders).expect("folders without colons");
    let output = tokio::process::Command::new("bash")
        .args(["-c", script])
        .current_dir(folder)
        .env("PATH", path)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    String::from_utf8(output.await.expect("bash").stdout).expect("text")
}

/// All fenced blocks of the README with this language.
fn blocks(language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let blocks = README.split(&fence).skip(1).map(|rest| rest.split("\n```").next().unwrap_or(rest));
    blocks.map(|block| format!("{block}\n")).collect()
}

fn steps(block: &str) -> Vec<TourStep> {
    let mut steps: Vec<TourStep> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(TourStep { command: command.to_owned(), printed: Vec::new() });
            continue;
        }
        let step = steps.last_mut().expect("a block begins with a command");
        match line.strip_prefix('>') {
            Some(more) => {
                step.command.push('\n');
                step.command.push_str(more.strip_prefix(' ').unwrap_or(more));
            }
            None => step.printed.push(line.to_owned()),
        }
    }
    steps
}

/// Whether the text is the expected one. `…` in `expected` matches any text.
fn fits(expected: &str, text: &str) -> bool {
    let Some((start, rest)) = expected.split_once('…') else { return expected == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| fits(rest, &text[at..]))
}
