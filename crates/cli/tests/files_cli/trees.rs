//! Copies of directory trees with `cp -r`, and their removal with `rm -r`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::support::{CopyFixture, noise, snapshot};

/// Makes a tree with files of many sizes, links, modes and times, and a directory that cannot be written.
fn make_tree(fixture: &CopyFixture) {
    for directory in ["tree/a/b/c", "tree/empty", "tree/shut"] {
        fs::create_dir_all(fixture.path(directory)).unwrap();
    }
    for number in 0..200_usize {
        fs::write(fixture.path(&format!("tree/a/{number}")), noise(number * 97, number as u64)).unwrap();
    }
    fs::write(fixture.path("tree/a/b/large"), noise(7_000_001, 5)).unwrap();
    fs::write(fixture.path("tree/shut/in"), "text").unwrap();
    fs::set_permissions(fixture.path("tree/a/7"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("7", fixture.path("tree/a/link")).unwrap();
    symlink("../empty", fixture.path("tree/a/to-directory")).unwrap();
    let touched = std::process::Command::new("touch")
        .args(["-d", "2002-02-02 02:02:02.020202020 UTC"])
        .args([fixture.path("tree/a/b"), fixture.path("tree/shut")])
        .status();
    assert!(touched.unwrap().success());
    fs::set_permissions(fixture.path("tree/shut"), fs::Permissions::from_mode(0o555)).unwrap();
}

#[tokio::test]
async fn a_tree_is_copied_in_both_directions_unchanged() {
    let fixture = CopyFixture::new().await;
    make_tree(&fixture);
    fixture.run_quietly(&["cp", "-r", &fixture.local("tree"), &fixture.remote("copy")]).await;
    assert!(snapshot(&fixture.path("copy")) == snapshot(&fixture.path("tree")), "the copy on the server differs");
    fixture.run_quietly(&["cp", "-r", &fixture.remote("copy"), &fixture.local("back")]).await;
    assert!(snapshot(&fixture.path("back")) == snapshot(&fixture.path("tree")), "the local copy differs");
    // This copy is made over the existing one.
    fixture.run_quietly(&["cp", "-r", &format!("{}/.", fixture.local("tree")), &fixture.remote("copy")]).await;
    assert!(
        snapshot(&fixture.path("copy")) == snapshot(&fixture.path("tree")),
        "the copy over an existing copy differs"
    );
}

#[tokio::test]
async fn a_tree_is_copied_into_an_existing_directory_under_its_name() {
    let fixture = CopyFixture::new().await;
    make_tree(&fixture);
    fs::create_dir(fixture.path("into")).unwrap();
    fixture.run_quietly(&["cp", "-r", &fixture.remote("tree"), &fixture.local("into")]).await;
    assert!(snapshot(&fixture.path("into/tree")) == snapshot(&fixture.path("tree")));
}

#[tokio::test]
async fn broken_links_are_copied_in_both_directions() {
    let fixture = CopyFixture::new().await;
    fs::create_dir(fixture.path("tree")).unwrap();
    symlink("nowhere", fixture.path("tree/dangling")).unwrap();
    symlink("../no/./such//file/", fixture.path("tree/odd")).unwrap();
    symlink("circle", fixture.path("tree/circle")).unwrap();
    symlink(OsStr::from_bytes(b"\xff"), fixture.path("tree").join(OsStr::from_bytes(b"\xfe"))).unwrap();
    for (source, target) in [
        (fixture.local("tree"), fixture.remote("copy")),
        (fixture.remote("tree"), fixture.local("back")),
        (fixture.remote("tree"), fixture.remote("beside")),
        // This copy is made over an existing one.
        (fixture.remote("tree/."), fixture.local("back")),
    ] {
        fixture.run_quietly(&["cp", "-r", &source, &target]).await;
    }
    for copy in ["copy", "back", "beside"] {
        let (copied, tree) = (snapshot(&fixture.path(copy)), snapshot(&fixture.path("tree")));
        assert_eq!(copied, tree, "{copy}");
        assert_eq!(copied.len(), 5);
    }
    fixture.run_quietly(&["cp", "-r", &fixture.remote("tree/dangling"), &fixture.local("alone")]).await;
    assert_eq!(fs::read_link(fixture.path("alone")).unwrap().as_os_str(), "nowhere");
}

#[tokio::test]
async fn special_files_are_left_out_with_a_message() {
    let fixture = CopyFixture::new().await;
    fs::create_dir(fixture.path("tree")).unwrap();
    fs::write(fixture.path("tree/file"), "").unwrap();
    assert!(std::process::Command::new("mkfifo").arg(fixture.path("tree/fifo")).status().unwrap().success());
    for (source, target) in
        [(fixture.local("tree"), fixture.remote("a")), (fixture.remote("tree"), fixture.local("b"))]
    {
        let (out, stderr, code) = fixture.run(&["cp", "-r", &source, &target]).await;
        assert_eq!((out.as_str(), code), ("", Some(1)));
        let expected = format!("exec-server: left out {source}/fifo: it is neither file, directory nor link\n");
        assert_eq!(stderr, expected);
    }
    assert!(fixture.path("a/file").exists() && fixture.path("b/file").exists() && !fixture.path("a/fifo").exists());
}

#[tokio::test]
async fn a_directory_is_copied_only_with_the_flag_r_and_not_into_itself() {
    let fixture = CopyFixture::new().await;
    fs::create_dir_all(fixture.path("tree/below")).unwrap();
    let (_, stderr, code) = fixture.run(&["cp", &fixture.remote("tree"), &fixture.local("x")]).await;
    let expected = format!("exec-server: {} is a directory; copy it with -r\n", fixture.remote("tree"));
    assert_eq!((stderr, code), (expected, Some(1)));
    let (_, stderr, code) = fixture.run(&["cp", "-r", &fixture.remote("tree"), &fixture.remote("tree/below")]).await;
    let expected = format!("exec-server: cannot copy {} into itself\n", fixture.remote("tree"));
    assert_eq!((stderr, code), (expected, Some(1)));
    // The target is on the server and yet inside of the local source. The copy leaves out only the target.
    let (_, stderr, code) =
        fixture.run(&["cp", "-r", &fixture.local("tree"), &fixture.remote("tree/below/new")]).await;
    let expected =
        format!("exec-server: left out {}: it is the target of this copy\n", fixture.local("tree/below/new"));
    assert_eq!((stderr, code), (expected, Some(1)));
    assert!(fixture.path("tree/below/new/below").is_dir() && !fixture.path("tree/below/new/below/new").exists());
    assert!(!fixture.path("x").exists());
}

#[tokio::test]
async fn links_below_the_target_are_not_followed() {
    let fixture = CopyFixture::new().await;
    fs::create_dir_all(fixture.path("outside/a")).unwrap();
    fs::write(fixture.path("outside/a/file"), "precious").unwrap();
    fs::create_dir_all(fixture.path("hostile/tree")).unwrap();
    symlink(fixture.path("outside/a"), fixture.path("hostile/tree/directory")).unwrap();
    symlink(fixture.path("outside/a/file"), fixture.path("hostile/tree/file")).unwrap();
    fs::create_dir_all(fixture.path("tree/directory")).unwrap();
    fs::write(fixture.path("tree/directory/file"), "new").unwrap();
    fs::write(fixture.path("tree/file"), "new").unwrap();
    for (number, path_on) in [CopyFixture::local, CopyFixture::remote].into_iter().enumerate() {
        let target = format!("target{number}");
        fs::create_dir(fixture.path(&target)).unwrap();
        // The first copy makes links in the target. The second copy has a file and a directory with the same names.
        fixture.run_quietly(&["cp", "-r", &fixture.remote("hostile/tree"), &path_on(&fixture, &target)]).await;
        let (_, stderr, code) =
            fixture.run(&["cp", "-r", &fixture.remote("tree"), &path_on(&fixture, &target)]).await;
        let refused = format!(
            "exec-server: cannot make the directory {}/tree/directory: File exists\n",
            path_on(&fixture, &target)
        );
        assert_eq!((stderr, code), (refused, Some(1)));
        let file = fixture.path(&format!("{target}/tree/file"));
        assert!(!file.is_symlink(), "the file has replaced the link");
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(fs::read(fixture.path("outside/a/file")).unwrap(), b"precious");
    }
    assert_eq!(fs::read_dir(fixture.path("outside/a")).unwrap().count(), 1);
}

#[tokio::test]
async fn a_tree_is_not_copied_through_a_link_with_its_name() {
    let fixture = CopyFixture::new().await;
    fs::create_dir_all(fixture.path("outside")).unwrap();
    fs::create_dir_all(fixture.path("target")).unwrap();
    fs::create_dir_all(fixture.path("tree")).unwrap();
    fs::write(fixture.path("tree/file"), "new").unwrap();
    symlink(fixture.path("outside"), fixture.path("target/tree")).unwrap();
    // A link in the path of the target itself is followed.
    symlink("target", fixture.path("way")).unwrap();
    for target in [fixture.local("way"), fixture.remote("way")] {
        let (_, stderr, code) = fixture.run(&["cp", "-r", &fixture.remote("tree"), &target]).await;
        let refused = format!("exec-server: cannot make the directory {target}/tree: File exists\n");
        assert_eq!((stderr, code), (refused, Some(1)));
    }
    assert_eq!(fs::read_dir(fixture.path("outside")).unwrap().count(), 0);
    fs::remove_file(fixture.path("target/tree")).unwrap();
    fixture.run_quietly(&["cp", "-r", &fixture.local("tree"), &fixture.remote("way")]).await;
    assert_eq!(fs::read(fixture.path("target/tree/file")).unwrap(), b"new");
}

#[tokio::test]
async fn a_directory_is_removed_only_by_its_name() {
    let fixture = CopyFixture::new().await;
    fs::create_dir(fixture.path("inside")).unwrap();
    fs::write(fixture.path("precious"), "").unwrap();
    for path in [":", ":.", ":inside/..", &fixture.remote("inside/."), ":/"] {
        let (_, stderr, code) = fixture.run(&["rm", "-r", path]).await;
        let refused = format!(
            "exec-server: refusing to remove {path}: it stands for a directory without naming it; write the name of the directory\n"
        );
        assert_eq!((stderr, code), (refused, Some(1)));
    }
    assert!(fixture.path("precious").exists() && fixture.path("inside").exists());
    fixture.run_quietly(&["rm", "-r", ":inside/"]).await;
    assert!(!fixture.path("inside").exists());
}
