//! Which machine a path is on. A flag or the name before the colon chooses an environment, which is a machine with a
//! server. An invalid choice is an error before any file is changed.

use std::fs;
use std::path::Path;

use tokio::process::Command;

use crate::support::{CopyFixture, bare_command, text_and_code, wait_for_output};

/// A command that runs in the folder `here`, with `--connect` for the server. The server runs in the parent of
/// `here`.
fn command_in_folder(fixture: &CopyFixture, args: &[&str]) -> Command {
    let mut command = fixture.command(args);
    command.current_dir(fixture.path("here"));
    command
}

/// A file `victim` in the folder of the server, and another one in the folder `here`.
async fn two_victims() -> CopyFixture {
    let fixture = CopyFixture::new().await;
    fs::create_dir(fixture.path("here")).unwrap();
    for folder in ["", "here/"] {
        fs::write(fixture.path(&format!("{folder}victim")), format!("in {folder}")).unwrap();
    }
    fixture
}

async fn run(mut command: Command) -> (String, String, Option<i32>) {
    text_and_code(&wait_for_output(command.spawn().unwrap()).await)
}

#[tokio::test]
async fn a_path_without_colon_is_in_the_environment_that_a_flag_chooses() {
    let fixture = two_victims().await;
    let quiet = (String::new(), String::new(), Some(0));
    assert_eq!(run(command_in_folder(&fixture, &["cat", "victim"])).await, ("in ".into(), String::new(), Some(0)));
    assert_eq!(run(command_in_folder(&fixture, &["ls", "here"])).await, ("victim\n".into(), String::new(), Some(0)));
    assert_eq!(run(command_in_folder(&fixture, &["mkdir", "made"])).await, quiet);
    assert!(fixture.path("made").is_dir() && !fixture.path("here/made").exists());
    assert_eq!(run(command_in_folder(&fixture, &["rm", "victim"])).await, quiet);
    assert!(fixture.path("here/victim").exists() && !fixture.path("victim").exists());
}

#[tokio::test]
async fn without_a_flag_a_path_without_colon_is_local() {
    let fixture = two_victims().await;
    let mut command = bare_command();
    command.args(["rm", "victim"]).current_dir(fixture.path("here"));
    assert_eq!(run(command).await, (String::new(), String::new(), Some(0)));
    assert!(!fixture.path("here/victim").exists() && fixture.path("victim").exists());
}

#[tokio::test]
async fn a_copy_that_does_not_involve_the_chosen_environment_is_refused() {
    let fixture = two_victims().await;
    let (_, stderr, code) = run(command_in_folder(&fixture, &["cp", "victim", "copy"])).await;
    assert_eq!(code, Some(1));
    let expected =
        "exec-server: no path is in the environment that --connect chooses; write :PATH for a path in it\n";
    assert_eq!(stderr, expected);
    assert!(!fixture.path("here/copy").exists() && !fixture.path("copy").exists());
}

#[tokio::test]
async fn an_unknown_environment_is_an_error_before_any_file_is_changed() {
    let fixture = two_victims().await;
    let command_without_configuration = |args: &[&str]| {
        let mut command = bare_command();
        command.args(args).current_dir(fixture.path("here"));
        command
    };
    let unknown = "there is no environment `nosuch`; there are: local\n";
    for args in [
        &["rm", "-e", "nosuch", "victim"][..],
        &["rm", "victim", "nosuch:victim"],
        &["rm", "-e", "nosuch", "local:victim"],
        &["mkdir", "-e", "nosuch", "made"],
        &["mkdir", "made", "nosuch:made"],
        &["cat", "-e", "nosuch", "victim"],
        &["cat", "victim", "nosuch:/x"],
        &["ls", "-e", "nosuch", "."],
        &["ls", ".", "nosuch:"],
        &["cp", "-e", "nosuch", "victim", ":copy"],
        &["cp", "-e", "nosuch", "victim", "copy"],
        &["cp", "nosuch:/x", "victim", "."],
    ] {
        let (out, stderr, code) = run(command_without_configuration(args)).await;
        assert_eq!((out.as_str(), code), ("", Some(1)), "{args:?}: {stderr}");
        assert!(stderr.ends_with(unknown) && stderr.lines().count() == 1, "{args:?}: {stderr}");
    }
    let names =
        |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(names(&fixture.path("here")), ["victim"]);
}
