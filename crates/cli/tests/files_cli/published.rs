//! The file commands with a server that has the published protocol (that of `codex exec-server`) and none of our
//! extensions. Before a copy begins, `cp` reports which properties of files it cannot keep.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use tempfile::TempDir;
use testkit::{PublishedProtocolServer, TestServer};

use crate::support::{command_at, text_and_code, wait_for_output};

/// A server without our extensions, and a folder with files that both the server and the commands use.
struct PublishedFiles {
    server: PublishedProtocolServer,
    folder: TempDir,
}

impl PublishedFiles {
    /// Starts a server that has neither our extensions nor the methods `missing`.
    async fn start(missing: &[&'static str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            server: PublishedProtocolServer::without_methods(TestServer::start().await, folder.path(), missing),
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn local(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn remote(&self, name: &str) -> String {
        format!(":{}", self.local(name))
    }

    async fn run(&self, args: &[&str]) -> (String, String, Option<i32>) {
        text_and_code(&wait_for_output(command_at(self.server.url(), args).spawn().unwrap()).await)
    }
}

#[tokio::test]
async fn cp_refuses_the_flag_p_and_warns_that_modes_and_times_are_not_kept() {
    let published = PublishedFiles::start(&[]).await;
    fs::write(published.path("secret"), "secret").unwrap();
    fs::set_permissions(published.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let (local, remote) = (published.local("secret"), published.remote("copy"));
    let message =
        format!("exec-server: the server of {remote} does not know modes, so -p cannot be done; leave out -p\n");
    assert_eq!(published.run(&["cp", "-p", &local, &remote]).await, (String::new(), message, Some(1)));
    assert!(!published.path("copy").exists());
    let message = format!(
        "exec-server: the server of {remote} knows only the published protocol: it cannot set modes and times, so new files may be readable for others\n"
    );
    assert_eq!(published.run(&["cp", &local, &remote]).await, (String::new(), message, Some(0)));
    assert_eq!(fs::read(published.path("copy")).unwrap(), b"secret");
    let remote = published.remote("secret");
    let message = format!(
        "exec-server: the server of {remote} knows only the published protocol: it does not report modes and times, so copies get default modes and do not keep the time\n"
    );
    let back = published.local("back");
    assert_eq!(published.run(&["cp", &remote, &back]).await, (String::new(), message, Some(0)));
    let message =
        format!("exec-server: the server of {remote} does not know modes, so -p cannot be done; leave out -p\n");
    assert_eq!(published.run(&["cp", "-p", &remote, &back]).await, (String::new(), message, Some(1)));
}

#[tokio::test]
async fn a_tree_is_copied_without_its_links() {
    let published = PublishedFiles::start(&[]).await;
    fs::create_dir_all(published.path("tree/inner")).unwrap();
    fs::write(published.path("tree/inner/file"), "text").unwrap();
    symlink("inner/file", published.path("tree/link")).unwrap();
    let (local, remote) = (published.local("tree"), published.remote("up"));
    let (_, stderr, code) = published.run(&["cp", "-r", &local, &remote]).await;
    let expected = format!(
        "exec-server: the server of {remote} knows only the published protocol: it cannot set modes and times, so new files may be readable for others; links are left out\n\
         exec-server: left out {local}/link: it is a link, and the server of {remote}/link cannot make links\n"
    );
    assert_eq!((stderr, code), (expected, Some(1)));
    assert_eq!(fs::read(published.path("up/inner/file")).unwrap(), b"text");
    let (remote, down) = (published.remote("tree"), published.local("down"));
    let (_, stderr, code) = published.run(&["cp", "-r", &remote, &down]).await;
    let expected = format!(
        "exec-server: the server of {remote} knows only the published protocol: it does not report modes and times, so copies get default modes and do not keep the time; links are left out\n\
         exec-server: cannot read {remote}/link: it is a link, and this server cannot read links\n"
    );
    assert_eq!((stderr, code), (expected, Some(1)));
    assert_eq!(fs::read(published.path("down/inner/file")).unwrap(), b"text");
}

#[tokio::test]
async fn absolute_paths_need_no_environment_info_and_relative_ones_report_that_it_is_missing() {
    let published = PublishedFiles::start(&["environment/info"]).await;
    fs::create_dir(published.path("folder")).unwrap();
    fs::write(published.path("folder/file"), "text").unwrap();
    let success = |text: &str| (text.to_owned(), String::new(), Some(0));
    assert_eq!(published.run(&["cat", &published.remote("folder/file")]).await, success("text"));
    assert_eq!(published.run(&["ls", &published.remote("folder")]).await, success("file\n"));
    assert_eq!(published.run(&["mkdir", &published.remote("folder/new")]).await, success(""));
    assert_eq!(published.run(&["rm", &published.remote("folder/file")]).await, success(""));
    let missing = |path: &str| {
        let message = format!(
            "exec-server: `{path}` is relative, and this server does not say which directory it is in; write an absolute path\n"
        );
        (String::new(), message, Some(1))
    };
    assert_eq!(published.run(&["cat", ":file"]).await, missing("file"));
    assert_eq!(published.run(&["ls"]).await, missing("."));
    assert_eq!(published.run(&["watch", ":file"]).await, missing("file"));
}
