//! `--help` of the program and of its commands.

use testkit::run_to_end;

/// Runs `exec-server` with these arguments and `--help`, and returns its stdout.
async fn help(args: &[&str]) -> String {
    let all: Vec<&str> = args.iter().chain(&["--help"]).copied().collect();
    let output = run_to_end(&all).await;
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn every_help_is_short_and_that_of_a_command_has_an_example() {
    let program_help = help(&[]).await;
    // It fits a terminal window of common size.
    assert!(program_help.lines().count() <= 48, "{program_help}");
    let commands =
        program_help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for command in commands.map(|line| line.trim_start().split(' ').next().unwrap()) {
        let help = help(&[command]).await;
        let examples = help.rsplit("Example").next().unwrap();
        assert!(examples.contains(&format!("exec-server {command}")), "{help}");
        assert!(help.lines().count() <= 70, "{help}");
        // `--client-token-file`, whose help names this variable, must be the last flag below this heading: flags of
        // the command itself do not belong there.
        if let Some((_, below)) = help.split_once("Which environment:\n") {
            let last = below.lines().take_while(|line| !line.is_empty()).last().unwrap();
            assert!(last.contains("EXEC_SERVER_CLIENT_TOKEN_FILE"), "{help}");
        }
    }
}
