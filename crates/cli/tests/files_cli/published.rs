//! The file commands against a server with the published protocol and none of our extensions. A copy says before it begins what it cannot
//! keep; everything else works.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use tempfile::TempDir;
use testkit::{PublishedServer, TestServer};

use crate::support::{command_at, finished, told};

struct PublishedFiles {
    server: PublishedServer,
    folder: TempDir,
}

impl PublishedFiles {
    async fn without(missing: &[&'static str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { server: PublishedServer::without(TestServer::start().await, folder.path(), missing), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn here(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn there(&self, name: &str) -> String {
        format!(":{}", self.here(name))
    }

    async fn run(&self, args: &[&str]) -> (String, String, Option<i32>) {
        told(&finished(command_at(self.server.url(), args).spawn().unwrap()).await)
    }
}

#[tokio::test]
async fn modes_that_cannot_be_kept_are_refused_or_mentioned_before_anything_is_copied() {
    let published = PublishedFiles::without(&[]).await;
    fs::write(published.path("secret"), "secret").unwrap();
    fs::set_permissions(published.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let (here, there) = (published.here("secret"), published.there("copy"));
    let words =
        format!("exec-server: the server of {there} does not know modes, so -p cannot be done; leave out -p\n");
    assert_eq!(published.run(&["cp", "-p", &here, &there]).await, (String::new(), words, Some(1)));
    assert!(!published.path("copy").exists());
    let words = format!(
        "exec-server: the server of {there} knows only the published protocol: it cannot set modes and times, so new files may be readable for others\n"
    );
    assert_eq!(published.run(&["cp", &here, &there]).await, (String::new(), words, Some(0)));
    assert_eq!(fs::read(published.path("copy")).unwrap(), b"secret");
    let there = published.there("secret");
    let words = format!(
        "exec-server: the server of {there} knows only the published protocol: it does not report modes and times, so copies get default modes and do not keep the time\n"
    );
    let back = published.here("back");
    assert_eq!(published.run(&["cp", &there, &back]).await, (String::new(), words, Some(0)));
    let words =
        format!("exec-server: the server of {there} does not know modes, so -p cannot be done; leave out -p\n");
    assert_eq!(published.run(&["cp", "-p", &there, &back]).await, (String::new(), words, Some(1)));
}

#[tokio::test]
async fn a_tree_is_copied_but_for_its_links() {
    let published = PublishedFiles::without(&[]).await;
    fs::create_dir_all(published.path("tree/inner")).unwrap();
    fs::write(published.path("tree/inner/file"), "text").unwrap();
    symlink("inner/file", published.path("tree/link")).unwrap();
    let (here, there) = (published.here("tree"), published.there("up"));
    let (_, complaints, code) = published.run(&["cp", "-r", &here, &there]).await;
    let expected = format!(
        "exec-server: the server of {there} knows only the published protocol: it cannot set modes and times, so new files may be readable for others; links are left out\n\
         exec-server: left out {there}/link: it is a link, and this server cannot make links\n"
    );
    assert_eq!((complaints, code), (expected, Some(1)));
    assert_eq!(fs::read(published.path("up/inner/file")).unwrap(), b"text");
    let (there, down) = (published.there("tree"), published.here("down"));
    let (_, complaints, code) = published.run(&["cp", "-r", &there, &down]).await;
    let expected = format!(
        "exec-server: the server of {there} knows only the published protocol: it does not report modes and times, so copies get default modes and do not keep the time; links are left out\n\
         exec-server: cannot read {there}/link: it is a link, and this server cannot read links\n"
    );
    assert_eq!((complaints, code), (expected, Some(1)));
    assert_eq!(fs::read(published.path("down/inner/file")).unwrap(), b"text");
}

#[tokio::test]
async fn absolute_paths_need_no_environment_info_and_relative_ones_report_that_it_is_missing() {
    let published = PublishedFiles::without(&["environment/info"]).await;
    fs::create_dir(published.path("folder")).unwrap();
    fs::write(published.path("folder/file"), "text").unwrap();
    let good = |text: &str| (text.to_owned(), String::new(), Some(0));
    assert_eq!(published.run(&["cat", &published.there("folder/file")]).await, good("text"));
    assert_eq!(published.run(&["ls", &published.there("folder")]).await, good("file\n"));
    assert_eq!(published.run(&["mkdir", &published.there("folder/new")]).await, good(""));
    assert_eq!(published.run(&["rm", &published.there("folder/file")]).await, good(""));
    let missing = |path: &str| {
        let words = format!(
            "exec-server: `{path}` is relative, and this server does not say which directory it is in; write an absolute path\n"
        );
        (String::new(), words, Some(1))
    };
    assert_eq!(published.run(&["cat", ":file"]).await, missing("file"));
    assert_eq!(published.run(&["ls"]).await, missing("."));
    assert_eq!(published.run(&["watch", ":file"]).await, missing("file"));
}
