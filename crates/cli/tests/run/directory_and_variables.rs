//! The directory in which a command runs, and its environment variables.

use testkit::TestServer;

use crate::support::{command, text_and_code, wait_for_output};

/// Runs the binary in `cwd` with these variables. Returns its stdout.
async fn stdout_of(args: &[&str], cwd: &str, variables: &[(&str, &str)]) -> String {
    let child = command(args).current_dir(cwd).envs(variables.iter().copied()).spawn().unwrap();
    let (stdout, stderr, _) = text_and_code(&wait_for_output(child).await);
    assert_eq!(stderr, "");
    stdout
}

/// A command that prints its directory and two variables.
const SHOW: [&str; 4] = ["--", "sh", "-c", "pwd; echo \"$CALLER\" \"$GIVEN\""];

#[tokio::test]
async fn on_this_machine_a_command_has_the_directory_and_variables_of_its_caller() {
    let run = async |flags: &[&str]| {
        let args: Vec<&str> = ["run"].iter().chain(flags).chain(&SHOW).copied().collect();
        stdout_of(&args, "/usr", &[("CALLER", "caller's")]).await
    };
    assert_eq!(run(&[]).await, "/usr\ncaller's \n");
    assert_eq!(run(&["--cwd", "bin", "--env", "GIVEN=x=y"]).await, "/usr/bin\ncaller's x=y\n");
    assert_eq!(run(&["--cwd", "/etc", "--env", "CALLER=new"]).await, "/etc\nnew \n");
}

#[tokio::test]
async fn on_a_server_a_command_has_the_directory_and_variables_of_the_server() {
    let server =
        TestServer::start_with(&[], |command| command.current_dir("/usr").env("CALLER", "the server's")).await;
    let run = async |flags: &[&str]| {
        let args: Vec<&str> = ["run", "--connect", server.url()].iter().chain(flags).chain(&SHOW).copied().collect();
        stdout_of(&args, "/etc", &[("CALLER", "caller's"), ("GIVEN", "passed on")]).await
    };
    assert_eq!(run(&[]).await, "/usr\nthe server's \n");
    assert_eq!(run(&["--cwd", "bin", "--env", "GIVEN"]).await, "/usr/bin\nthe server's passed on\n");
    assert_eq!(run(&["--cwd", "/tmp", "--env", "CALLER"]).await, "/tmp\ncaller's \n");
}

#[tokio::test]
async fn the_help_explains_where_a_command_runs_without_a_cwd() {
    for name in ["run", "shell", "mcp-stdio"] {
        let help = stdout_of(&[name, "--help"], "/", &[]).await;
        let text = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains(
                "[default: the server's, or yours if the environment is this machine or you are below --local-root]"
            ),
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
    assert_eq!(stdout_of(&show, "/", &settings).await, "bogus /no/such/file\n");
    let output = wait_for_output(command(&["--listen", "stdio"]).envs(settings).spawn().unwrap()).await;
    assert_eq!(output.status.code(), Some(2), "a server reads these variables and refuses them");
    let output = wait_for_output(command(&["--help-limits"]).envs(settings).spawn().unwrap()).await;
    assert_eq!(output.status.code(), Some(0), "the list of limits helps to correct a wrong value");
}
