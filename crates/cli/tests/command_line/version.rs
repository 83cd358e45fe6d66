//! `--version` names the commit from which the binary was built, if the build knew it. `--version` and `--help` fail
//! if their text cannot be written.

use std::fs::File;

use testkit::run_to_end;

use crate::support::{command, wait_for_output};

#[tokio::test]
async fn a_text_that_cannot_be_written_is_an_error() {
    for args in [&["--version"][..], &["--help"], &["run", "--help"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = wait_for_output(command(args).stdout(full).spawn().unwrap()).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        let expected = "exec-server: cannot write the output: No space left on device\n";
        assert_eq!((stderr.as_str(), output.status.code()), (expected, Some(125)), "{args:?}");
    }
}

#[tokio::test]
async fn the_version_names_a_commit_if_the_sources_are_in_a_git_repository() {
    let output = run_to_end(&["--version"]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    let version = concat!("exec-server ", env!("CARGO_PKG_VERSION"));
    let rest = text.trim_end().strip_prefix(version).unwrap_or_else(|| panic!("{text}"));
    // The binary may be older than HEAD, so the test checks only that the text has the form of a commit.
    let git = std::process::Command::new("git").args(["rev-parse", "HEAD"]).output();
    match git.ok().filter(|git| git.status.success()) {
        Some(_head) => {
            let commit = rest.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')'));
            let commit = commit.unwrap_or_else(|| panic!("{text}"));
            assert!(commit.len() == 12 && commit.chars().all(|c| c.is_ascii_hexdigit()), "{text}");
        }
        None => assert_eq!(rest, ""),
    }
}
