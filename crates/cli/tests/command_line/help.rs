//! `--help` of the program and of its commands.

use testkit::run_to_end;

async fn help(args: &[&str]) -> String {
    let all: Vec<&str> = args.iter().chain(&["--help"]).copied().collect();
    let output = run_to_end(&all).await;
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn every_command_has_an_example_and_fits_a_screen() {
    let all = help(&[]).await;
    assert!(all.lines().count() <= 40, "{all}");
    let commands = all.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for command in commands.map(|line| line.trim_start().split(' ').next().unwrap()) {
        let help = help(&[command]).await;
        let examples = help.rsplit("Example").next().unwrap();
        assert!(examples.contains(&format!("exec-server {command}")), "{help}");
        assert!(help.lines().count() <= 65, "{help}");
        // Only flags that choose an environment stand below this heading.
        if let Some((_, below)) = help.split_once("Which environment:\n") {
            let last = below.lines().take_while(|line| !line.is_empty()).last().unwrap();
            assert!(last.contains("EXEC_SERVER_CLIENT_TOKEN_FILE"), "{help}");
        }
    }
}
