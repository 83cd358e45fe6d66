//! The command `shell` tells a person in which environment, that is on which server, the shell runs. Every shell gets
//! a variable with the name of the environment. On a terminal there are also two hints: a line at the start, and in
//! bash and zsh the name before the prompt.

use std::process::Stdio;

use testkit::scripted::ScriptedReply;
use testkit::{ScriptedServer, Terminal, TestServer, Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::support::{command, wait_for_output};

/// Runs the command `shell` on a terminal, connected to a server whose login shell is `login_shell`. `variable` is an
/// environment variable of the command. Returns the environment variables that the command sends in `process/start`,
/// except `TERM`, and the text that the terminal shows.
async fn run_shell(login_shell: &str, args: &[&str], variable: Option<(&str, &str)>) -> (Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let server = ScriptedServer::new();
    let info = json!({"shell": {"name": login_shell, "path": format!("/bin/{login_shell}")}, "capabilities": {}});
    server.on("environment/info", move |_| ScriptedReply::Result(info.clone()));
    let listener = server.listen(folder.path());
    let all: Vec<&str> = ["shell", "--connect", listener.url()].iter().chain(args).copied().collect();
    let mut terminal = Terminal::start(&all, |command| command.envs(variable));
    let started = server.wait_for("process/start", 1).await;
    terminal.wait_for_raw_mode(true).await;
    // Enter and then `~.` hang up.
    terminal.type_keys("\r~.");
    assert_eq!(terminal.wait_for_end().await.code(), Some(129));
    let mut variables = started.params["env"].clone();
    // Every process on a terminal gets `TERM`.
    variables.as_object_mut().unwrap().remove("TERM");
    (variables, terminal.screen_after_end().await)
}

#[tokio::test]
async fn every_shell_gets_the_variable_and_the_line_and_bash_and_zsh_also_a_prompt() {
    let bash = r#"case ${PS1-} in "(scripted.sock) "*) ;; *) PS1="(scripted.sock) ${PS1-}" ;; esac"#;
    for (shell, prompt) in
        [("bash", Some(("PROMPT_COMMAND", bash))), ("zsh", Some(("PROMPT", "(scripted.sock) %m%# "))), ("sh", None)]
    {
        let (variables, shown) = run_shell(shell, &[], None).await;
        let mut expected = json!({"EXEC_SERVER_ENVIRONMENT": "scripted.sock"});
        if let Some((name, value)) = prompt {
            expected[name] = value.into();
        }
        assert_eq!(variables, expected, "{shell}");
        assert!(shown.starts_with("[exec-server: connected to scripted.sock (unix:///"), "{shown}");
        assert!(shown.contains("/scripted.sock); ~. hangs up]\r\n"), "{shown}");
    }
}

#[tokio::test]
async fn a_user_can_turn_the_hints_off_or_use_variables_of_their_own() {
    let name_only = json!({"EXEC_SERVER_ENVIRONMENT": "scripted.sock"});
    let off = run_shell("bash", &["--no-hint"], None).await;
    assert_eq!(off, (name_only.clone(), String::new()));
    let off = run_shell("zsh", &[], Some(("EXEC_SERVER_NO_HINT", "1"))).await;
    assert_eq!(off, (name_only, String::new()));
    // With `0` the hints stay on, but they do not replace variables that the user sets.
    let args = ["--env", "PROMPT_COMMAND=:", "--env", "EXEC_SERVER_ENVIRONMENT=mine"];
    let (own, _) = run_shell("bash", &args, Some(("EXEC_SERVER_NO_HINT", "0"))).await;
    assert_eq!(own, json!({"EXEC_SERVER_ENVIRONMENT": "mine", "PROMPT_COMMAND": ":"}));
}

#[tokio::test]
async fn bash_and_zsh_show_the_name_once_in_each_prompt() {
    // The first input sets a prompt of the user in bash. In zsh such a prompt would replace the name.
    for (shell, command, first_input, next_prompt) in [
        ("bash", &["bash", "--norc", "-i"][..], "PS1='mine: '", "(scripted.sock) mine: "),
        ("bash", &["bash", "--norc", "-i"], "set -u; unset PS1", "(scripted.sock) "),
        ("zsh", &["zsh", "-f", "-i"], "true", "(scripted.sock) "),
    ] {
        let (variables, _) = run_shell(shell, &[], None).await;
        let variables: Vec<String> = variables
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| format!("{name}={}", value.as_str().unwrap()))
            .collect();
        let flags = variables.iter().flat_map(|variable| ["--env", variable]);
        // Without a scripted server, `run` starts the real shell on this machine, with the same variables.
        let args: Vec<&str> =
            ["run", "-t"].into_iter().chain(flags).chain(["--"]).chain(command.iter().copied()).collect();
        let mut terminal = Terminal::start(&args, |command| command);
        terminal.wait_for_text("(scripted.sock) ").await;
        // The quotes keep the echo of the typed line different from the output of the command.
        terminal.type_keys(&format!("{first_input}; echo and''then\r"));
        terminal.wait_for_text("andthen\r\n").await;
        terminal.wait_for_text(next_prompt).await;
        terminal.type_keys("echo ins''ide $EXEC_SERVER_ENVIRONMENT; exit 7\r");
        terminal.wait_for_text("inside scripted.sock\r\n").await;
        assert_eq!(terminal.wait_for_end().await.code(), Some(7));
        assert!(!terminal.screen_after_end().await.contains("(scripted.sock) (scripted.sock)"));
    }
}

#[tokio::test]
async fn a_shell_without_a_terminal_gets_the_variable_and_no_hints() {
    let server = TestServer::start().await;
    let mut shell = command(&["shell", "--connect", server.url()]);
    let mut shell = shell.stdin(Stdio::piped()).spawn().unwrap();
    let script = b"echo $EXEC_SERVER_ENVIRONMENT ${PROMPT_COMMAND-none} ${PROMPT-none}\n";
    shell.stdin.take().unwrap().write_all(script).await.unwrap();
    let output = wait_for_output(shell).await;
    let printed = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(printed, (format!("{} none none\n", server.address()), String::new()));
}
