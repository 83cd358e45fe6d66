//! Copies with `cp`, from and to a server: contents, modes, times and names of files, and how paths are understood.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use std::process::Stdio;

use testkit::TestServer;
use tokio::process::Command;

use crate::support::{CopyFixture, bare_command, noise, snapshot, text_and_code, wait_for_output};

/// Makes a file with an old time and an unusual mode.
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
        fixture.run_quietly(&["cp", "-p", &fixture.local("a"), &fixture.remote("b")]).await;
        fixture.run_quietly(&["cp", "-p", &fixture.remote("b"), &fixture.local("c")]).await;
        for name in ["b", "c"] {
            let found = fs::metadata(fixture.path(name)).unwrap();
            // The setuid bit is never copied, because the copy may have another owner.
            assert_eq!(found.mode() & 0o7777, 0o751, "{name}, {size}");
            assert_eq!((found.mtime(), found.mtime_nsec()), (981_173_106, 123_456_789), "{name}, {size}");
            assert!(fs::read(fixture.path(name)).unwrap() == noise(size, 1), "{name}, {size}");
        }
    }
}

#[tokio::test]
async fn files_are_copied_into_a_directory_or_to_a_new_name() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), "a").unwrap();
    fs::write(fixture.path("b"), "b").unwrap();
    fs::create_dir(fixture.path("d")).unwrap();
    fixture.run_quietly(&["cp", &fixture.local("a"), &fixture.local("b"), &fixture.remote("d")]).await;
    fixture.run_quietly(&["cp", &fixture.remote("a"), &format!("{}/e", fixture.local("d"))]).await;
    fs::create_dir(fixture.path("f")).unwrap();
    fixture.run_quietly(&["cp", &fixture.remote("d/e"), &fixture.local("f/")]).await;
    for (name, text) in [("d/a", "a"), ("d/b", "b"), ("d/e", "a"), ("f/e", "a")] {
        assert_eq!(fs::read_to_string(fixture.path(name)).unwrap(), text, "{name}");
    }
}

#[tokio::test]
async fn relative_paths_on_the_server_are_resolved_against_its_working_directory() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), "a").unwrap();
    fixture.run_quietly(&["cp", ":a", ":b"]).await;
    fs::create_dir(fixture.path("elsewhere")).unwrap();
    let mut command = fixture.command(&["cp", ":a", "."]);
    let output = wait_for_output(command.current_dir(fixture.path("elsewhere")).spawn().unwrap()).await;
    assert_eq!(text_and_code(&output), (String::new(), String::new(), Some(0)));
    assert!(fixture.path("b").exists() && fixture.path("elsewhere/a").exists());
}

#[tokio::test]
async fn both_paths_may_be_local() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), noise(3_000_000, 2)).unwrap();
    let output =
        wait_for_output(bare_command().args(["cp", &fixture.local("a"), &fixture.local("b")]).spawn().unwrap()).await;
    assert_eq!(text_and_code(&output), (String::new(), String::new(), Some(0)));
    assert!(fs::read(fixture.path("b")).unwrap() == noise(3_000_000, 2));
}

/// An environment is a machine with a server, which `environments.toml` configures.
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
    let target = format!("two:{}", fixture.local("b"));
    let mut command = bare_command();
    command.env("EXEC_SERVER_HOME", fixture.path("home")).args(["cp", "one:a", &target]);
    assert_eq!(
        text_and_code(&wait_for_output(command.spawn().unwrap()).await),
        (String::new(), String::new(), Some(0))
    );
    assert_eq!(fs::read(fixture.path("b")).unwrap(), b"text");

    // There is no environment `three`. The error says how to write the path of a local file `three:a`.
    let mut command = bare_command();
    command.env("EXEC_SERVER_HOME", fixture.path("home")).args(["cat", "three:a"]);
    let (_, stderr, code) = text_and_code(&wait_for_output(command.spawn().unwrap()).await);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("three:a") && stderr.contains("./three:a"), "{stderr}");
}

#[tokio::test]
async fn file_names_may_have_any_characters_and_need_not_be_utf_8() {
    let fixture = CopyFixture::new().await;
    let name_of = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    fs::create_dir(fixture.path("tree")).unwrap();
    fs::write(fixture.path("tree").join(name_of(b"\xff\xfe")), "one").unwrap();
    fs::write(fixture.path("tree").join("new\nline %41?#"), "two").unwrap();
    fixture.run_quietly(&["cp", "-r", &fixture.local("tree"), &fixture.remote("copy")]).await;
    fixture.run_quietly(&["cp", "-r", &fixture.remote("copy"), &fixture.local("back")]).await;
    assert_eq!(snapshot(&fixture.path("back")), snapshot(&fixture.path("tree")));
    let mut typed = OsString::from(fixture.remote("copy/"));
    typed.push(name_of(b"\xff\xfe"));
    assert_eq!(fixture.run(&[OsString::from("cat"), typed]).await, ("one".into(), String::new(), Some(0)));
}

#[tokio::test]
async fn an_existing_file_is_replaced_by_a_new_one_and_not_overwritten_in_place() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), "new").unwrap();
    for (source, target) in [(fixture.local("a"), fixture.remote("b")), (fixture.remote("a"), fixture.local("b"))] {
        fs::write(fixture.path("b"), "old and longer").unwrap();
        let before = fs::metadata(fixture.path("b")).unwrap().ino();
        fixture.run_quietly(&["cp", &source, &target]).await;
        assert_eq!(fs::read(fixture.path("b")).unwrap(), b"new");
        assert_ne!(fs::metadata(fixture.path("b")).unwrap().ino(), before);
    }
}

fn mode(fixture: &CopyFixture, name: &str) -> u32 {
    fs::symlink_metadata(fixture.path(name)).unwrap().mode() & 0o7777
}

/// The binary with a umask, and with pipes as stdout and stderr.
fn command_with_umask(umask: &str, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask $0; exec \"$@\"", umask]).arg(testkit::binary()).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

#[tokio::test]
async fn the_mode_of_a_copy_depends_on_the_umask_on_an_existing_file_and_on_the_flag_p() {
    let fixture = CopyFixture::new().await;
    let server = TestServer::launch(command_with_umask("027", &[]), &[]).await;
    let copy = async |args: &[&str]| {
        let child = command_with_umask("077", &[&["cp", "--connect", server.url()], args].concat()).spawn().unwrap();
        assert_eq!(text_and_code(&wait_for_output(child).await), (String::new(), String::new(), Some(0)), "{args:?}");
    };
    fs::create_dir(fixture.path("tree")).unwrap();
    for (name, bits) in [("tree/script", 0o775), ("tree/text", 0o664), ("tree/secret", 0o600)] {
        fs::write(fixture.path(name), name).unwrap();
        fs::set_permissions(fixture.path(name), fs::Permissions::from_mode(bits)).unwrap();
    }
    fs::set_permissions(fixture.path("tree"), fs::Permissions::from_mode(0o775)).unwrap();
    copy(&["-r", &fixture.remote("tree"), &fixture.local("here")]).await;
    copy(&["-r", &fixture.local("tree"), &fixture.remote("there")]).await;
    copy(&["-rp", &fixture.remote("tree"), &fixture.local("exact")]).await;
    for (copy, expected) in [
        ("here", [0o700, 0o700, 0o600, 0o600]),
        ("there", [0o750, 0o750, 0o640, 0o600]),
        ("exact", [0o775, 0o775, 0o664, 0o600]),
    ] {
        let found = ["", "/script", "/text", "/secret"].map(|name| mode(&fixture, &format!("{copy}{name}")));
        assert_eq!(found.map(|bits| format!("{bits:o}")), expected.map(|bits| format!("{bits:o}")), "{copy}");
    }
    // An existing file keeps its mode. With `-p` it gets the mode of the source.
    fs::set_permissions(fixture.path("there"), fs::Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(fixture.path("there/text"), fs::Permissions::from_mode(0o606)).unwrap();
    copy(&["-r", &fixture.local("tree/."), &fixture.remote("there")]).await;
    assert_eq!((mode(&fixture, "there"), mode(&fixture, "there/text")), (0o711, 0o606));
    copy(&["-rp", &fixture.local("tree/."), &fixture.remote("there")]).await;
    assert_eq!((mode(&fixture, "there"), mode(&fixture, "there/text")), (0o775, 0o664));
}
