//! The git configuration of a user. It lists patterns of files that git, and so a search, ignores in all repositories
//! of the user (the global excludes). A search must not hang or use much memory if a file of the configuration is
//! unusual.

use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;
use testkit::{TestServer, json};

use crate::support::{SearchFixture, uri};

/// The error that a search reports for a file of the git configuration that it does not use.
const UNUSABLE_FILE: &str = "not an ordinary file of at most 1 MiB, or a list of excludes with more than 10,000 lines or with more than 1,000 braces in a line, so the global excludes of git are not used; correct the file or search without ignore files";

/// A server whose user has this home directory, and a repository with the files `file` and `excluded`.
async fn fixture(home: &TempDir) -> SearchFixture {
    let server = TestServer::start_with(&[], |command| {
        for name in ["XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"] {
            command.env_remove(name);
        }
        command.env("HOME", home.path())
    })
    .await;
    SearchFixture::with_server(server, &[(".git/HEAD", b""), ("file", b"needle\n"), ("excluded", b"needle\n")]).await
}

fn create_fifo(path: &Path) {
    rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
}

#[tokio::test]
async fn a_git_configuration_that_is_a_fifo_a_device_or_a_huge_file_is_reported() {
    let make_fifo: fn(&Path) = create_fifo;
    let make_endless: fn(&Path) = |path| symlink("/dev/zero", path).unwrap();
    let make_huge: fn(&Path) = |path| std::fs::File::create(path).unwrap().set_len((1 << 20) + 1).unwrap();
    for (name, make) in [
        (".gitconfig", make_fifo),
        (".gitconfig", make_endless),
        (".gitconfig", make_huge),
        (".config/git/config", make_fifo),
        (".config/git/ignore", make_huge),
    ] {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        make(&path);
        let mut fixture = fixture(&home).await;
        let outcome = fixture.search(json!({"pattern": "needle"})).await;
        assert_eq!(outcome.paths(), ["excluded", "file"], "{name}");
        let expected = json!([{"path": uri(&path), "message": UNUSABLE_FILE}]);
        assert_eq!(outcome.result["errors"], expected, "{name}");
    }
}

#[tokio::test]
async fn regular_configurations_are_read_and_dev_null_counts_as_empty() {
    let home = tempfile::tempdir().unwrap();
    let mut fixture = fixture(&home).await;
    symlink("/dev/null", home.path().join(".gitconfig")).unwrap();
    std::fs::create_dir_all(home.path().join(".config/git")).unwrap();
    std::fs::write(home.path().join(".config/git/ignore"), "excluded\n").unwrap();
    let outcome = fixture.search(json!({"pattern": "needle"})).await;
    assert_eq!((outcome.paths(), &outcome.result["errors"]), (vec!["file"], &json!([])));
}
