//! The command `completions` prints a script with which a shell completes the command line of `exec-server`.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use testkit::run_to_end;
use tokio::process::Command;

async fn script(shell: &str) -> String {
    let output = run_to_end(&["completions", shell]).await;
    assert!(output.status.success() && output.stderr.is_empty());
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn supported_shells_get_a_script_and_other_shells_an_error() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = script(shell).await;
        assert!(script.contains("mcp-stdio") && script.contains("exec-server"), "{shell}");
    }
    let output = run_to_end(&["completions", "csh"]).await;
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]));
    assert!(
        String::from_utf8(output.stderr).unwrap().contains("[possible values: bash, elvish, fish, powershell, zsh]")
    );
}

#[tokio::test]
async fn bash_completes_commands_and_flags() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("completions.bash");
    std::fs::write(&file, script("bash").await).unwrap();
    // Calls the completion function in the same way as bash does when the user presses the tab key. `$1` is the file
    // of the script, and the other arguments are the words after `exec-server`.
    let press_tab = r#"
        source "$1"
        complete -p exec-server >/dev/null || exit 1
        COMP_WORDS=(exec-server "${@:2}") COMP_CWORD=$(($# - 1))
        function=$(complete -p exec-server | sed 's/.*-F \([^ ]*\).*/\1/')
        "$function" exec-server "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    for (typed, expected) in [(&["ru"][..], "run\n"), (&["mcp"], "mcp-stdio\n"), (&["kill", "--sig"], "--signal\n")] {
        let mut bash = Command::new("bash");
        let output = bash.args(["--norc", "-c", press_tab, "bash"]).arg(&file).args(typed).output().await.unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{typed:?}");
    }
}
