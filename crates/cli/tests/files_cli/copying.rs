//! Copies of one file in both directions.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use std::process::Stdio;

use testkit::TestServer;
use tokio::process::Command;

use crate::support::{CopyFixture, bare_command, finished, noise, snapshot, told};

fn old_file(fixture: &CopyFixture, name: &str, data: &[u8]) {
    fs::write(fixture.path(name), data).unwrap();
    fs::set_permissions(fixture.path(name), fs::Permissions::from_mode(0o4751)).unwrap();
    let touched = std::process::Command::new("touch")
        .args(["-d", "2001-02-03 04:05:06.123456789 UTC"])
        .arg(fixture.path(name))
        .status();
    assert!(touched.unwrap().success());
}

#[tokio::test]
async fn contents_mode_and_time_survive_in_both_directions() {
    let fixture = CopyFixture::new().await;
    for size in [0, 1, 300_000, 5_000_000] {
        old_file(&fixture, "a", &noise(size, 1));
        fixture.quietly(&["cp", "-p", &fixture.here("a"), &fixture.there("b")]).await;
        fixture.quietly(&["cp", "-p", &fixture.there("b"), &fixture.here("c")]).await;
        for name in ["b", "c"] {
            let found = fs::metadata(fixture.path(name)).unwrap();
            // The setuid bit is not copied, because the copy has another owner.
            assert_eq!(found.mode() & 0o7777, 0o751, "{name}, {size}");
            assert_eq!((found.mtime(), found.mtime_nsec()), (981_173_106, 123_456_789), "{name}, {size}");
            assert!(fs::read(fixture.path(name)).unwrap() == noise(size, 1), "{name}, {size}");
        }
    }
}

#[tokio::test]
async fn a_file_is_copied_into_a_target_directory() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), "a").unwrap();
    fs::write(fixture.path("b"), "b").unwrap();
    fs::create_dir(fixture.path("d")).unwrap();
    fixture.quietly(&["cp", &fixture.here("a"), &fixture.here("b"), &fixture.there("d")]).await;
    fixture.quietly(&["cp", &fixture.there("a"), &format!("{}/e", fixture.here("d"))]).await;
    fs::create_dir(fixture.path("f")).unwrap();
    fixture.quietly(&["cp", &fixture.there("d/e"), &fixture.here("f/")]).await;
    for (name, text) in [("d/a", "a"), ("d/b", "b"), ("d/e", "a"), ("f/e", "a")] {
        assert_eq!(fs::read_to_string(fixture.path(name)).unwrap(), text, "{name}");
    }
}

#[tokio::test]
async fn relative_paths_are_resolved_against_the_directory_of_the_server() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), "a").unwrap();
    fixture.quietly(&["cp", ":a", ":b"]).await;
    fs::create_dir(fixture.path("elsewhere")).unwrap();
    let mut command = fixture.command(&["cp", ":a", "."]);
    let all = finished(command.current_dir(fixture.path("elsewhere")).spawn().unwrap()).await;
    assert_eq!(told(&all), (String::new(), String::new(), Some(0)));
    assert!(fixture.path("b").exists() && fixture.path("elsewhere/a").exists());
}

#[tokio::test]
async fn both_paths_may_be_local() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), noise(3_000_000, 2)).unwrap();
    let all = finished(bare_command().args(["cp", &fixture.here("a"), &fixture.here("b")]).spawn().unwrap()).await;
    assert_eq!(told(&all), (String::new(), String::new(), Some(0)));
    assert!(fs::read(fixture.path("b")).unwrap() == noise(3_000_000, 2));
}

#[tokio::test]
async fn environments_are_chosen_by_name() {
    let fixture = CopyFixture::new().await;
    let other = TestServer::start().await;
    fs::create_dir(fixture.path("home")).unwrap();
    let toml = format!(
        "[[environments]]\nid = \"one\"\nurl = \"{}\"\n[[environments]]\nid = \"two\"\nurl = \"{}\"\n",
        fixture.server.url(),
        other.url()
    );
    fs::write(fixture.path("home/environments.toml"), toml).unwrap();
    fs::write(fixture.path("a"), "text").unwrap();
    let target = format!("two:{}", fixture.here("b"));
    let mut command = bare_command();
    command.env("EXEC_SERVER_HOME", fixture.path("home")).args(["cp", "one:a", &target]);
    assert_eq!(told(&finished(command.spawn().unwrap()).await), (String::new(), String::new(), Some(0)));
    assert_eq!(fs::read(fixture.path("b")).unwrap(), b"text");

    let mut command = bare_command();
    command.env("EXEC_SERVER_HOME", fixture.path("home")).args(["cat", "three:a"]);
    let (_, complaint, code) = told(&finished(command.spawn().unwrap()).await);
    assert_eq!(code, Some(1));
    assert!(complaint.contains("three:a") && complaint.contains("./three:a"), "{complaint}");
}

#[tokio::test]
async fn file_names_need_not_be_utf_8() {
    let fixture = CopyFixture::new().await;
    let strange = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    fs::create_dir(fixture.path("tree")).unwrap();
    fs::write(fixture.path("tree").join(strange(b"\xff\xfe")), "one").unwrap();
    fs::write(fixture.path("tree").join("new\nline %41?#"), "two").unwrap();
    fixture.quietly(&["cp", "-r", &fixture.here("tree"), &fixture.there("copy")]).await;
    fixture.quietly(&["cp", "-r", &fixture.there("copy"), &fixture.here("back")]).await;
    assert_eq!(snapshot(&fixture.path("back")), snapshot(&fixture.path("tree")));
    let mut typed = OsString::from(fixture.there("copy/"));
    typed.push(strange(b"\xff\xfe"));
    assert_eq!(fixture.run(&[OsString::from("cat"), typed]).await, ("one".into(), String::new(), Some(0)));
}

#[tokio::test]
async fn a_file_is_replaced_as_a_whole() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), "new").unwrap();
    for (source, target) in [(fixture.here("a"), fixture.there("b")), (fixture.there("a"), fixture.here("b"))] {
        fs::write(fixture.path("b"), "old and longer").unwrap();
        let before = fs::metadata(fixture.path("b")).unwrap().ino();
        fixture.quietly(&["cp", &source, &target]).await;
        assert_eq!(fs::read(fixture.path("b")).unwrap(), b"new");
        assert_ne!(fs::metadata(fixture.path("b")).unwrap().ino(), before);
    }
}

fn mode(fixture: &CopyFixture, name: &str) -> u32 {
    fs::symlink_metadata(fixture.path(name)).unwrap().mode() & 0o7777
}

/// The binary with a umask, on pipes.
fn under_umask(umask: &str, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask $0; exec \"$@\"", umask]).arg(testkit::binary()).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

#[tokio::test]
async fn new_files_get_the_mode_that_the_umask_allows() {
    let fixture = CopyFixture::new().await;
    let server = TestServer::launch(under_umask("027", &[]), &[]).await;
    let copy = async |args: &[&str]| {
        let command = under_umask("077", &[&["cp", "--connect", server.url()], args].concat()).spawn().unwrap();
        assert_eq!(told(&finished(command).await), (String::new(), String::new(), Some(0)), "{args:?}");
    };
    fs::create_dir(fixture.path("tree")).unwrap();
    for (name, bits) in [("tree/script", 0o775), ("tree/text", 0o664), ("tree/secret", 0o600)] {
        fs::write(fixture.path(name), name).unwrap();
        fs::set_permissions(fixture.path(name), fs::Permissions::from_mode(bits)).unwrap();
    }
    fs::set_permissions(fixture.path("tree"), fs::Permissions::from_mode(0o775)).unwrap();
    copy(&["-r", &fixture.there("tree"), &fixture.here("here")]).await;
    copy(&["-r", &fixture.here("tree"), &fixture.there("there")]).await;
    copy(&["-rp", &fixture.there("tree"), &fixture.here("exact")]).await;
    for (copy, expected) in [
        ("here", [0o700, 0o700, 0o600, 0o600]),
        ("there", [0o750, 0o750, 0o640, 0o600]),
        ("exact", [0o775, 0o775, 0o664, 0o600]),
    ] {
        let found = ["", "/script", "/text", "/secret"].map(|name| mode(&fixture, &format!("{copy}{name}")));
        assert_eq!(found.map(|bits| format!("{bits:o}")), expected.map(|bits| format!("{bits:o}")), "{copy}");
    }
    // An existing file keeps its mode, unless `-p` sets that of the source.
    fs::set_permissions(fixture.path("there"), fs::Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(fixture.path("there/text"), fs::Permissions::from_mode(0o606)).unwrap();
    copy(&["-r", &fixture.here("tree/."), &fixture.there("there")]).await;
    assert_eq!((mode(&fixture, "there"), mode(&fixture, "there/text")), (0o711, 0o606));
    copy(&["-rp", &fixture.here("tree/."), &fixture.there("there")]).await;
    assert_eq!((mode(&fixture, "there"), mode(&fixture, "there/text")), (0o775, 0o664));
}
