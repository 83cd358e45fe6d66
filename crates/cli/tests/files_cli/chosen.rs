//! Which machine a path is on: what the flags choose, what stands before the colon, and what is refused before anything is touched.

use std::fs;
use std::path::Path;

use tokio::process::Command;

use crate::support::{World, bare_command, finished, told};

/// The binary in a folder that has files of the same names as the server's folder.
fn beside(world: &World, args: &[&str]) -> Command {
    let mut command = world.command(args);
    command.current_dir(world.path("here"));
    command
}

async fn two_victims() -> World {
    let world = World::new().await;
    fs::create_dir(world.path("here")).unwrap();
    for folder in ["", "here/"] {
        fs::write(world.path(&format!("{folder}victim")), format!("in {folder}")).unwrap();
    }
    world
}

async fn run(mut command: Command) -> (String, String, Option<i32>) {
    told(&finished(command.spawn().unwrap()).await)
}

#[tokio::test]
async fn a_bare_path_is_in_the_environment_that_a_flag_chooses() {
    let world = two_victims().await;
    let quiet = (String::new(), String::new(), Some(0));
    assert_eq!(run(beside(&world, &["cat", "victim"])).await, ("in ".into(), String::new(), Some(0)));
    assert_eq!(run(beside(&world, &["ls", "here"])).await, ("victim\n".into(), String::new(), Some(0)));
    assert_eq!(run(beside(&world, &["mkdir", "made"])).await, quiet);
    assert!(world.path("made").is_dir() && !world.path("here/made").exists());
    assert_eq!(run(beside(&world, &["rm", "victim"])).await, quiet);
    assert!(world.path("here/victim").exists() && !world.path("victim").exists());
}

#[tokio::test]
async fn without_a_flag_a_bare_path_is_here() {
    let world = two_victims().await;
    let mut command = bare_command();
    command.args(["rm", "victim"]).current_dir(world.path("here"));
    assert_eq!(run(command).await, (String::new(), String::new(), Some(0)));
    assert!(!world.path("here/victim").exists() && world.path("victim").exists());
}

#[tokio::test]
async fn a_copy_that_leaves_the_chosen_environment_out_is_refused() {
    let world = two_victims().await;
    let (_, complaint, code) = run(beside(&world, &["cp", "victim", "copy"])).await;
    assert_eq!(code, Some(1));
    let expected =
        "exec-server: no path is in the environment that --connect chooses; write :PATH for a path over there\n";
    assert_eq!(complaint, expected);
    assert!(!world.path("here/copy").exists() && !world.path("copy").exists());
}

#[tokio::test]
async fn an_environment_that_does_not_exist_is_named_before_anything_is_touched() {
    let world = two_victims().await;
    let nothing_configured = |args: &[&str]| {
        let mut command = bare_command();
        command.args(args).current_dir(world.path("here"));
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
        let (out, complaint, code) = run(nothing_configured(args)).await;
        assert_eq!((out.as_str(), code), ("", Some(1)), "{args:?}: {complaint}");
        assert!(complaint.ends_with(unknown) && complaint.lines().count() == 1, "{args:?}: {complaint}");
    }
    let names =
        |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(names(&world.path("here")), ["victim"]);
}
