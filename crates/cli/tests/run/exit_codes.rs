//! The exit codes of `run`, and errors in the arguments of `run` and `shell`.

use testkit::TestServer;

use crate::support::{output, text_and_code};

async fn code(args: &[&str]) -> Option<i32> {
    output(args).await.status.code()
}

#[tokio::test]
async fn the_exit_code_is_that_of_the_command() {
    assert_eq!(code(&["run", "--", "true"]).await, Some(0));
    assert_eq!(code(&["run", "--", "sh", "-c", "exit 77"]).await, Some(77));
    assert_eq!(code(&["run", "--", "sh", "-c", "kill -9 $$"]).await, Some(137));
}

#[tokio::test]
async fn the_exit_code_tells_why_a_command_cannot_be_started() {
    let stderr_and_code = async |args: &[&str]| {
        let (stdout, stderr, code) = text_and_code(&output(args).await);
        assert_eq!(stdout, "");
        (stderr, code)
    };
    let not_found = |name: &str| (format!("exec-server: {name}: command not found\n"), Some(127));
    assert_eq!(stderr_and_code(&["run", "--", "no-such-program"]).await, not_found("no-such-program"));
    assert_eq!(stderr_and_code(&["run", "--", "/no/such program"]).await, not_found("/no/such program"));
    assert_eq!(stderr_and_code(&["run", "--", "./no-such-program"]).await, not_found("./no-such-program"));
    let (stderr, code) = stderr_and_code(&["run", "--", "/etc/passwd"]).await;
    assert_eq!((stderr.as_str(), code), ("exec-server: /etc/passwd: Permission denied\n", Some(126)));
    let (stderr, code) = stderr_and_code(&["run", "--cwd", "/no/such/folder", "--", "true"]).await;
    assert!(stderr.contains("cwd /no/such/folder: No such file") && code == Some(125), "{stderr}");
    // The error must be about the directory, although its name ends with the name of the program.
    assert_eq!(stderr_and_code(&["run", "--cwd", "/no/true", "--", "true"]).await.1, Some(125));
}

#[tokio::test]
async fn a_failure_of_run_itself_has_exit_code_125() {
    let (_, stderr, code) = text_and_code(&output(&["run", "--connect", "ws://127.0.0.1:1", "--", "true"]).await);
    assert_eq!(code, Some(125));
    assert!(stderr.starts_with("exec-server: ") && stderr.lines().count() == 1, "{stderr}");
}

#[tokio::test]
async fn a_timeout_has_exit_code_124() {
    assert_eq!(code(&["run", "--timeout", "100ms", "--", "sleep", "600"]).await, Some(124));
    assert_eq!(code(&["run", "--timeout", "1h", "--", "sh", "-c", "exit 3"]).await, Some(3));
}

#[tokio::test]
async fn the_exit_codes_are_the_same_with_connect() {
    let server = TestServer::start().await;
    let run = async |args: &[&str]| {
        let args: Vec<&str> = ["run", "--connect", server.url()].iter().chain(args).copied().collect();
        code(&args).await
    };
    assert_eq!(run(&["--", "sh", "-c", "exit 9"]).await, Some(9));
    assert_eq!(run(&["--", "no-such-program"]).await, Some(127));
    assert_eq!(run(&["--", "/etc/passwd"]).await, Some(126));
    assert_eq!(run(&["--timeout", "100ms", "--", "sleep", "600"]).await, Some(124));
}

#[tokio::test]
async fn an_id_that_is_empty_or_has_invisible_characters_is_refused() {
    for (id, message) in [
        ("", "an id of no characters names nothing; leave --id out to get a number"),
        ("a\x1b[31m", "`a\\u{1b}[31m` is no id: it has characters that cannot be seen"),
    ] {
        let result = text_and_code(&output(&["run", "--id", id, "--", "true"]).await);
        assert_eq!(result, (String::new(), format!("exec-server: {message}\n"), Some(125)));
    }
}

/// A kept session outlives the command that opened it.
#[tokio::test]
async fn flags_for_kept_sessions_are_refused_without_a_kept_session() {
    for (args, flag, missing) in [
        (&["run", "--id", "job", "--", "true"][..], "--id", "--session or --detach"),
        (&["run", "--keep", "1h", "--", "true"], "--keep", "--session or --detach"),
        (&["shell", "--keep", "1h"], "--keep", "--session"),
    ] {
        let message = format!("exec-server: {flag} is about a kept session; give {missing} too\n");
        assert_eq!(text_and_code(&output(args).await), (String::new(), message, Some(125)));
    }
}
