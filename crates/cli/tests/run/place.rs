//! The directory in which a command runs, and its variables.

use testkit::TestServer;

use crate::support::{command, finished, told};

async fn said(args: &[&str], cwd: &str, variables: &[(&str, &str)]) -> String {
    let child = command(args).current_dir(cwd).envs(variables.iter().copied()).spawn().unwrap();
    let (stdout, stderr, _) = told(&finished(child).await);
    assert_eq!(stderr, "");
    stdout
}

const SHOW: [&str; 4] = ["--", "sh", "-c", "pwd; echo \"$OURS\" \"$GIVEN\""];

#[tokio::test]
async fn on_this_machine_a_command_has_our_directory_and_variables() {
    let run = async |flags: &[&str]| {
        let args: Vec<&str> = ["run"].iter().chain(flags).chain(&SHOW).copied().collect();
        said(&args, "/usr", &[("OURS", "ours")]).await
    };
    assert_eq!(run(&[]).await, "/usr\nours \n");
    assert_eq!(run(&["--cwd", "bin", "--env", "GIVEN=x=y"]).await, "/usr/bin\nours x=y\n");
    assert_eq!(run(&["--cwd", "/etc", "--env", "OURS=new"]).await, "/etc\nnew \n");
}

#[tokio::test]
async fn on_a_server_a_command_has_the_directory_and_variables_of_the_server() {
    let server = TestServer::with(&[], |command| command.current_dir("/usr").env("OURS", "the server's")).await;
    let run = async |flags: &[&str]| {
        let args: Vec<&str> = ["run", "--connect", server.url()].iter().chain(flags).chain(&SHOW).copied().collect();
        said(&args, "/etc", &[("OURS", "ours"), ("GIVEN", "passed on")]).await
    };
    assert_eq!(run(&[]).await, "/usr\nthe server's \n");
    assert_eq!(run(&["--cwd", "bin", "--env", "GIVEN"]).await, "/usr/bin\nthe server's passed on\n");
    assert_eq!(run(&["--cwd", "/tmp", "--env", "OURS"]).await, "/tmp\nours \n");
}

#[tokio::test]
async fn the_help_says_where_a_command_runs_without_a_cwd() {
    for name in ["run", "shell", "mcp-stdio"] {
        let help = said(&[name, "--help"], "/", &[]).await;
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            words.contains("[default: yours on this machine and below --local-root, else the server's]"),
            "{help}"
        );
    }
}

#[tokio::test]
async fn variables_that_configure_a_server_do_not_affect_a_client_and_are_passed_on() {
    let settings = [
        ("EXEC_SERVER_SESSION_TTL", "bogus"),
        ("EXEC_SERVER_TLS_CERT", "/no/such/file"),
        ("EXEC_SERVER_TOKEN_FILE", "/no/such/file"),
        ("EXEC_SERVER_MAX_PROCESSES", "0"),
    ];
    let show = ["run", "--", "sh", "-c", "echo $EXEC_SERVER_SESSION_TTL $EXEC_SERVER_TOKEN_FILE"];
    assert_eq!(said(&show, "/", &settings).await, "bogus /no/such/file\n");
    let all = finished(command(&["--help-limits"]).envs(settings).spawn().unwrap()).await;
    assert_eq!(all.status.code(), Some(2), "a server reads them");
}
