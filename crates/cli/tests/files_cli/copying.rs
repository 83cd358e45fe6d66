//! One file, both ways.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use std::process::Stdio;

use testkit::TestServer;
use tokio::process::Command;

use crate::support::{World, bare_command, finished, noise, snapshot, told};

fn old_file(world: &World, name: &str, data: &[u8]) {
    fs::write(world.path(name), data).unwrap();
    fs::set_permissions(world.path(name), fs::Permissions::from_mode(0o4751)).unwrap();
    let touched = std::process::Command::new("touch")
        .args(["-d", "2001-02-03 04:05:06.123456789 UTC"])
        .arg(world.path(name))
        .status();
    assert!(touched.unwrap().success());
}

#[tokio::test]
async fn contents_mode_and_time_survive_both_ways() {
    let world = World::new().await;
    for size in [0, 1, 300_000, 5_000_000] {
        old_file(&world, "a", &noise(size, 1));
        world.quietly(&["cp", "-p", &world.here("a"), &world.there("b")]).await;
        world.quietly(&["cp", "-p", &world.there("b"), &world.here("c")]).await;
        for name in ["b", "c"] {
            let found = fs::metadata(world.path(name)).unwrap();
            // A copy lends nobody the rights of whoever owns it.
            assert_eq!(found.mode() & 0o7777, 0o751, "{name}, {size}");
            assert_eq!((found.mtime(), found.mtime_nsec()), (981_173_106, 123_456_789), "{name}, {size}");
            assert!(fs::read(world.path(name)).unwrap() == noise(size, 1), "{name}, {size}");
        }
    }
}

#[tokio::test]
async fn a_directory_as_target_gets_the_file() {
    let world = World::new().await;
    fs::write(world.path("a"), "a").unwrap();
    fs::write(world.path("b"), "b").unwrap();
    fs::create_dir(world.path("d")).unwrap();
    world.quietly(&["cp", &world.here("a"), &world.here("b"), &world.there("d")]).await;
    world.quietly(&["cp", &world.there("a"), &format!("{}/e", world.here("d"))]).await;
    fs::create_dir(world.path("f")).unwrap();
    world.quietly(&["cp", &world.there("d/e"), &world.here("f/")]).await;
    for (name, text) in [("d/a", "a"), ("d/b", "b"), ("d/e", "a"), ("f/e", "a")] {
        assert_eq!(fs::read_to_string(world.path(name)).unwrap(), text, "{name}");
    }
}

#[tokio::test]
async fn relative_paths_begin_where_the_server_is() {
    let world = World::new().await;
    fs::write(world.path("a"), "a").unwrap();
    world.quietly(&["cp", ":a", ":b"]).await;
    fs::create_dir(world.path("elsewhere")).unwrap();
    let mut command = world.command(&["cp", ":a", "."]);
    let all = finished(command.current_dir(world.path("elsewhere")).spawn().unwrap()).await;
    assert_eq!(told(&all), (String::new(), String::new(), Some(0)));
    assert!(world.path("b").exists() && world.path("elsewhere/a").exists());
}

#[tokio::test]
async fn both_sides_may_be_here() {
    let world = World::new().await;
    fs::write(world.path("a"), noise(3_000_000, 2)).unwrap();
    let all = finished(bare_command().args(["cp", &world.here("a"), &world.here("b")]).spawn().unwrap()).await;
    assert_eq!(told(&all), (String::new(), String::new(), Some(0)));
    assert!(fs::read(world.path("b")).unwrap() == noise(3_000_000, 2));
}

#[tokio::test]
async fn environments_have_names() {
    let world = World::new().await;
    let other = TestServer::start().await;
    fs::create_dir(world.path("home")).unwrap();
    let toml = format!(
        "[[environments]]\nid = \"one\"\nurl = \"{}\"\n[[environments]]\nid = \"two\"\nurl = \"{}\"\n",
        world.server.url(),
        other.url()
    );
    fs::write(world.path("home/environments.toml"), toml).unwrap();
    fs::write(world.path("a"), "text").unwrap();
    let target = format!("two:{}", world.here("b"));
    let mut command = bare_command();
    command.env("EXEC_SERVER_HOME", world.path("home")).args(["cp", "one:a", &target]);
    assert_eq!(told(&finished(command.spawn().unwrap()).await), (String::new(), String::new(), Some(0)));
    assert_eq!(fs::read(world.path("b")).unwrap(), b"text");

    let mut command = bare_command();
    command.env("EXEC_SERVER_HOME", world.path("home")).args(["cat", "three:a"]);
    let (_, complaint, code) = told(&finished(command.spawn().unwrap()).await);
    assert_eq!(code, Some(1));
    assert!(complaint.contains("three:a") && complaint.contains("./three:a"), "{complaint}");
}

#[tokio::test]
async fn names_need_not_be_text() {
    let world = World::new().await;
    let strange = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    fs::create_dir(world.path("tree")).unwrap();
    fs::write(world.path("tree").join(strange(b"\xff\xfe")), "one").unwrap();
    fs::write(world.path("tree").join("new\nline %41?#"), "two").unwrap();
    world.quietly(&["cp", "-r", &world.here("tree"), &world.there("copy")]).await;
    world.quietly(&["cp", "-r", &world.there("copy"), &world.here("back")]).await;
    assert_eq!(snapshot(&world.path("back")), snapshot(&world.path("tree")));
    let mut typed = OsString::from(world.there("copy/"));
    typed.push(strange(b"\xff\xfe"));
    assert_eq!(world.run(&[OsString::from("cat"), typed]).await, ("one".into(), String::new(), Some(0)));
}

#[tokio::test]
async fn a_file_that_is_replaced_is_replaced_as_a_whole() {
    let world = World::new().await;
    fs::write(world.path("a"), "new").unwrap();
    for (source, target) in [(world.here("a"), world.there("b")), (world.there("a"), world.here("b"))] {
        fs::write(world.path("b"), "old and longer").unwrap();
        let before = fs::metadata(world.path("b")).unwrap().ino();
        world.quietly(&["cp", &source, &target]).await;
        assert_eq!(fs::read(world.path("b")).unwrap(), b"new");
        assert_ne!(fs::metadata(world.path("b")).unwrap().ino(), before);
    }
}

fn mode(world: &World, name: &str) -> u32 {
    fs::symlink_metadata(world.path(name)).unwrap().mode() & 0o7777
}

/// The binary under a umask, on pipes.
fn under_umask(umask: &str, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask $0; exec \"$@\"", umask]).arg(testkit::binary()).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

#[tokio::test]
async fn new_files_have_the_mode_that_the_umask_leaves_them() {
    let world = World::new().await;
    let server = TestServer::launch(under_umask("027", &[]), &[]).await;
    let copy = async |args: &[&str]| {
        let command = under_umask("077", &[&["cp", "--connect", server.url()], args].concat()).spawn().unwrap();
        assert_eq!(told(&finished(command).await), (String::new(), String::new(), Some(0)), "{args:?}");
    };
    fs::create_dir(world.path("tree")).unwrap();
    for (name, bits) in [("tree/script", 0o775), ("tree/text", 0o664), ("tree/secret", 0o600)] {
        fs::write(world.path(name), name).unwrap();
        fs::set_permissions(world.path(name), fs::Permissions::from_mode(bits)).unwrap();
    }
    fs::set_permissions(world.path("tree"), fs::Permissions::from_mode(0o775)).unwrap();
    copy(&["-r", &world.there("tree"), &world.here("here")]).await;
    copy(&["-r", &world.here("tree"), &world.there("there")]).await;
    copy(&["-rp", &world.there("tree"), &world.here("exact")]).await;
    for (copy, expected) in [
        ("here", [0o700, 0o700, 0o600, 0o600]),
        ("there", [0o750, 0o750, 0o640, 0o600]),
        ("exact", [0o775, 0o775, 0o664, 0o600]),
    ] {
        let found = ["", "/script", "/text", "/secret"].map(|name| mode(&world, &format!("{copy}{name}")));
        assert_eq!(found.map(|bits| format!("{bits:o}")), expected.map(|bits| format!("{bits:o}")), "{copy}");
    }
    // What is there keeps its mode, unless it is to have that of the source.
    fs::set_permissions(world.path("there"), fs::Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(world.path("there/text"), fs::Permissions::from_mode(0o606)).unwrap();
    copy(&["-r", &world.here("tree/."), &world.there("there")]).await;
    assert_eq!((mode(&world, "there"), mode(&world, "there/text")), (0o711, 0o606));
    copy(&["-rp", &world.here("tree/."), &world.there("there")]).await;
    assert_eq!((mode(&world, "there"), mode(&world, "there/text")), (0o775, 0o664));
}
