//! The flags with a real server: what they do not allow fails.

use std::path::Path;

use tempfile::TempDir;
use testkit::{HttpPeer, TestServer, json};

use crate::policies::{path_entry, restricted, special_entry};
use crate::run_in;

/// A server, and two directories of its machine.
struct RealServer {
    server: TestServer,
    allowed: TempDir,
    outside: TempDir,
}

impl RealServer {
    async fn start() -> Self {
        let [allowed, outside] = [(), ()].map(|()| tempfile::tempdir().unwrap());
        Self { server: TestServer::start().await, allowed, outside }
    }

    /// Runs a command in the environment of this server. Returns stdout, stderr and exit code.
    async fn run(&self, command: &str, args: &[&str]) -> (String, String, Option<i32>) {
        run_in(self.outside.path(), &[&[command, "--connect", self.server.url()][..], args].concat()).await
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn files_are_copied_only_to_writable_directories() {
    let real = RealServer::start().await;
    std::fs::write(real.outside.path().join("file"), "text").unwrap();
    let copy = async |to: &Path| {
        let to = format!(":{}/copy", to.display());
        real.run("cp", &["--sandbox", "read-only", "--writable", text(real.allowed.path()), "file", &to]).await
    };
    let (_, stderr, code) = copy(real.outside.path()).await;
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("ead-only file system"), "{stderr}");
    assert_eq!(names(real.outside.path()), ["file"]);
    let (_, stderr, code) = copy(real.allowed.path()).await;
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    assert_eq!(std::fs::read_to_string(real.allowed.path().join("copy")).unwrap(), "text");
}

#[tokio::test]
async fn an_mcp_server_is_started_in_the_sandbox() {
    let real = RealServer::start().await;
    let file = real.allowed.path().join("file");
    let script = format!("echo x > {}", file.display());
    let (_, stderr, code) = real.run("mcp-stdio", &["--sandbox", "read-only", "--", "sh", "-c", &script]).await;
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("Read-only file system"), "{stderr}");
    assert!(!file.exists());
    let writable = ["--sandbox", "read-only", "--writable", text(real.allowed.path()), "--", "sh", "-c", &script];
    assert_eq!(real.run("mcp-stdio", &writable).await, (String::new(), String::new(), Some(0)));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "x\n");
}

#[tokio::test]
async fn a_policy_file_denies_paths_to_commands_about_files() {
    let real = RealServer::start().await;
    let denied = real.allowed.path().join("denied");
    std::fs::create_dir(&denied).unwrap();
    for directory in [real.allowed.path(), &denied] {
        std::fs::write(directory.join("file"), "text").unwrap();
    }
    let entries = vec![
        special_entry(json!({"kind": "root"}), "read"),
        path_entry(&format!("file://{}", denied.display()), "deny"),
    ];
    std::fs::write(real.outside.path().join("policy.json"), restricted(entries, "restricted").to_string()).unwrap();
    let sandboxed =
        async |command: &str, path: &Path| real.run(command, &["--sandbox", "policy.json", text(path)]).await;
    for (command, path) in [("ls", denied.clone()), ("cat", denied.join("file"))] {
        let (stdout, stderr, code) = sandboxed(command, &path).await;
        assert_eq!((stdout.as_str(), code), ("", Some(1)), "{command}: {stderr}");
        assert!(stderr.contains("ermission denied"), "{command}: {stderr}");
        assert_eq!(real.run(command, &[text(&path)]).await.2, Some(0), "the policy is the reason");
    }
    let (stdout, stderr, code) = sandboxed("ls", real.allowed.path()).await;
    assert_eq!((stdout.as_str(), stderr.as_str(), code), ("denied\nfile\n", "", Some(0)));
    let (stdout, stderr, code) = sandboxed("cat", &real.allowed.path().join("file")).await;
    assert_eq!((stdout.as_str(), stderr.as_str(), code), ("text", "", Some(0)));
}

#[tokio::test]
async fn the_network_is_reached_only_with_its_flag() {
    let real = RealServer::start().await;
    let peer = HttpPeer::closing(|_| testkit::http_ok("hello")).await;
    let url = peer.url("/");
    let dial = async |flags: &[&str]| {
        let curl = ["--", "curl", "-sS", "-m", "10", "--noproxy", "*", &url];
        real.run("run", &[&["--sandbox", "read-only"], flags, &curl].concat()).await
    };
    let (stdout, stderr, code) = dial(&[]).await;
    assert_eq!((stdout.as_str(), code), ("", Some(7)), "{stderr}");
    assert_eq!(peer.connections_accepted(), 0);
    assert_eq!(dial(&["--allow-network"]).await, ("hello".to_owned(), String::new(), Some(0)));
    assert_eq!(peer.requests().len(), 1);
}
