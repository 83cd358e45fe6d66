//! The program prints colours only on a terminal, and not if the user refuses them (`NO_COLOR` or `TERM=dumb`).

use std::process::Stdio;

use testkit::{Terminal, UPGRADE_HEADERS, binary, hide_configuration, http_get};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

const ESCAPE: char = '\u{1b}';

/// Runs `search needle` on a terminal, in a folder with one match, and with this environment variable. Returns all
/// output, escape sequences included.
async fn output_of_search(variable: (&str, &str)) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "a needle\u{7}\n").unwrap();
    let args = ["search", "needle", folder.path().to_str().unwrap()];
    let mut terminal = Terminal::start(&args, |command| command.env_remove("NO_COLOR").env(variable.0, variable.1));
    assert!(terminal.wait_for_end().await.success());
    terminal.screen_after_end().await
}

#[tokio::test]
async fn a_search_is_coloured_on_a_terminal_unless_the_user_refuses() {
    let coloured = output_of_search(("TERM", "xterm")).await;
    assert!(coloured.contains("\u{1b}[1;31mneedle\u{1b}[0m"), "{coloured:?}");
    for refusal in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let plain = output_of_search(refusal).await;
        // The bell character of the file is escaped with and without colours.
        assert!(plain.ends_with("file:1:a needle\\u{7}\r\n") && !plain.contains(ESCAPE), "{refusal:?}: {plain:?}");
    }
}

#[tokio::test]
async fn help_is_coloured_on_a_terminal_unless_the_user_refuses() {
    for (variable, value, is_coloured) in [("TERM", "xterm", true), ("NO_COLOR", "1", false), ("TERM", "dumb", false)]
    {
        let mut terminal = Terminal::start(&["--help"], |command| {
            command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").env_remove("CI").env(variable, value)
        });
        assert!(terminal.wait_for_end().await.success());
        let shown = terminal.screen_after_end().await;
        assert_eq!(shown.contains(ESCAPE), is_coloured, "{variable}={value}: {shown:?}");
    }
}

#[tokio::test]
async fn the_log_is_coloured_on_a_terminal_only() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "x".repeat(64)).unwrap();
    let args = ["--token-file", tokens.to_str().unwrap()];
    let mut command = Command::new(binary());
    command.args(args).env("TERM", "xterm").env_remove("NO_COLOR");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut server = hide_configuration(&mut command).spawn().unwrap();
    let mut url = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut url).await.unwrap();
    // The server logs that a client without a token was refused.
    let address = url.trim().strip_prefix("ws://").unwrap();
    assert_eq!(http_get(address, "/", UPGRADE_HEADERS).await.status, 401);
    let mut line = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut line).await.unwrap();
    assert!(line.contains("authentication failed") && !line.contains(ESCAPE), "{line:?}");

    let mut terminal = Terminal::start(&args, |command| command.env_remove("NO_COLOR"));
    terminal.wait_for_text("ws://").await;
    let address = terminal.wait_for_text("\r\n").await;
    assert_eq!(http_get(address.trim(), "/", UPGRADE_HEADERS).await.status, 401);
    let line = terminal.wait_for_text("authentication failed").await;
    assert!(line.contains(ESCAPE), "{line:?}");
    terminal.type_keys("\x03");
    assert!(terminal.wait_for_end().await.success());
}
