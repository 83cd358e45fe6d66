//! Which server gets the token of `--client-token-file` or of its variable. A token is a secret: it goes to the
//! environment that the user has chosen, or to the default, and to no other.

use std::path::Path;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use testkit::TestServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::support::{command, wait_for_output};

const VARIABLE: &str = "EXEC_SERVER_CLIENT_TOKEN_FILE";

/// A server that refuses every connection, and remembers the tokens that clients send.
struct TokenCollector {
    address: String,
    /// One entry for each request: the token, or `None` for a request without one.
    tokens: Arc<Mutex<Vec<Option<String>>>>,
    accepting: JoinHandle<()>,
}

impl TokenCollector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, tokens) = (listener.local_addr().unwrap().to_string(), Arc::<Mutex<Vec<_>>>::default());
        let collected = Arc::clone(&tokens);
        let accepting = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") && client.read_buf(&mut request).await.unwrap() > 0 {}
                let request = String::from_utf8(request).unwrap();
                let token = request.lines().find_map(|line| line.strip_prefix("Authorization: Bearer "));
                collected.lock().unwrap().push(token.map(str::to_owned));
                client.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            }
        });
        Self { address, tokens, accepting }
    }

    /// The tokens of the requests since the last call.
    fn take(&self) -> Vec<Option<String>> {
        std::mem::take(&mut self.tokens.lock().unwrap())
    }
}

impl Drop for TokenCollector {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Three configured servers: `build` has a token file of its own, `plain` is the default, and `other` is neither.
struct ThreeServers {
    folder: TempDir,
    build: TokenCollector,
    other: TokenCollector,
    plain: TokenCollector,
    /// A server that takes every client.
    _open: TestServer,
}

impl ThreeServers {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (build, other, plain) =
            (TokenCollector::start().await, TokenCollector::start().await, TokenCollector::start().await);
        let open = TestServer::start().await;
        let environment =
            |id: &str, address: &str| format!("[[environments]]\nid = \"{id}\"\nurl = \"ws://{address}\"\n");
        let text = format!(
            "default = \"plain\"\ninclude_local = false\n{}token_file = \"own\"\n{}{}{}",
            environment("build", &build.address),
            environment("other", &other.address),
            environment("plain", &plain.address),
            environment("a-open", open.address()),
        );
        std::fs::write(folder.path().join("environments.toml"), text).unwrap();
        std::fs::write(folder.path().join("own"), "token-of-build-itself\n").unwrap();
        std::fs::write(folder.path().join("given"), "given-token-0123456789\n").unwrap();
        Self { folder, build, other, plain, _open: open }
    }

    fn given(&self) -> String {
        self.folder.path().join("given").to_str().unwrap().to_owned()
    }

    /// Runs a command, and returns which servers got which tokens, and stderr.
    async fn run(&self, args: &[&str], variable: Option<&str>) -> (Vec<(&'static str, String)>, String) {
        let mut command = command(args);
        command.env("EXEC_SERVER_HOME", self.folder.path()).envs(variable.map(|file| (VARIABLE, file)));
        let output = wait_for_output(command.current_dir(Path::new("/")).spawn().unwrap()).await;
        let all = [("build", &self.build), ("other", &self.other), ("plain", &self.plain)];
        let tokens = all.into_iter().flat_map(|(id, server)| {
            server.take().into_iter().map(move |token| (id, token.unwrap_or_else(|| "none".to_owned())))
        });
        (tokens.collect(), String::from_utf8(output.stderr).unwrap())
    }
}

const OWN: &str = "token-of-build-itself";
const GIVEN: &str = "given-token-0123456789";

fn sent(tokens: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    tokens.iter().map(|(id, token)| (*id, (*token).to_owned())).collect()
}

#[tokio::test]
async fn a_check_of_all_environments_sends_the_given_token_to_the_default_only() {
    let servers = ThreeServers::start().await;
    let given = servers.given();
    let expected = sent(&[("build", OWN), ("other", "none"), ("plain", GIVEN)]);
    assert_eq!(servers.run(&["env", "--check"], Some(&given)).await.0, expected);
    assert_eq!(servers.run(&["env", "--check", "--client-token-file", &given], None).await.0, expected);
}

#[tokio::test]
async fn a_chosen_environment_gets_the_token_that_was_typed_and_not_that_of_a_variable() {
    let servers = ThreeServers::start().await;
    let given = servers.given();
    for (id, variable, typed) in [("build", OWN, GIVEN), ("other", "none", GIVEN), ("plain", GIVEN, GIVEN)] {
        let id: &'static str = id;
        assert_eq!(servers.run(&["env", "--check", "-e", id], Some(&given)).await.0, sent(&[(id, variable)]));
        let args = ["env", "--check", "-e", id, "--client-token-file", &given];
        assert_eq!(servers.run(&args, None).await.0, sent(&[(id, typed)]));
    }
    let url = format!("ws://{}", servers.other.address);
    assert_eq!(servers.run(&["env", "--check", "--connect", &url], Some(&given)).await.0, sent(&[("other", GIVEN)]));
}

#[tokio::test]
async fn an_environment_that_a_path_names_gets_only_its_own_token() {
    let servers = ThreeServers::start().await;
    let given = servers.given();
    for (path, tokens) in [
        ("build:x", sent(&[("build", OWN)])),
        ("other:x", sent(&[("other", "none")])),
        ("plain:x", sent(&[("plain", GIVEN)])),
        (":x", sent(&[("plain", GIVEN)])),
    ] {
        assert_eq!(servers.run(&["cp", "a-open:x", path], Some(&given)).await.0, tokens, "cp {path}");
        assert_eq!(servers.run(&["search", "x", path], Some(&given)).await.0, tokens, "search {path}");
    }
    // `-e` chooses the environment of the typed token, and the other environment of the copy gets its own token.
    let args = ["cp", "-e", "a-open", "--client-token-file", &given, ":x", "other:y"];
    assert_eq!(servers.run(&args, None).await.0, sent(&[("other", "none")]));
}

#[tokio::test]
async fn a_typed_token_without_a_chosen_environment_is_refused_if_a_path_names_another_than_the_default() {
    let servers = ThreeServers::start().await;
    let given = servers.given();
    for args in [&["cp", "a-open:x", "other:y"][..], &["search", "x", "other:y"], &["watch", "other:y"]] {
        let args = [args, &["--client-token-file", &given]].concat();
        let (tokens, stderr) = servers.run(&args, None).await;
        assert_eq!(tokens, []);
        assert!(stderr.contains("--client-token-file is for the environment that -e chooses"), "{stderr}");
    }
}
