//! An error text that comes from a server is escaped before it is printed, so that a hostile server cannot control
//! the terminal.

use std::fs;
use std::path::Path;

use crate::support::{bare_command, text_and_code, wait_for_output};

/// A server in Python. It answers `initialize` and `environment/info` with a result. It answers all other requests
/// with an error that contains terminal escape sequences.
const HOSTILE_SERVER: &str = r#"
import json, sys
info = {"shell": {"name": "sh", "path": "/bin/sh"}, "cwd": "file:///", "capabilities": {"fsSearch": True, "fsWatch": True, "fsSetMetadata": True, "fsLinks": True}}
answers = {"initialize": {}, "environment/info": info}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"id": message["id"]}
    if message["method"] in answers:
        answer["result"] = answers[message["method"]]
    else:
        text = "no\x1b]0;owned\x07\r\nexec-server: all is well\u009b2J (os error 5)"
        answer["error"] = {"code": -32603, "message": text, "data": {"kind": "other", "errno": 5}}
    print(json.dumps(answer), flush=True)
"#;

/// Configures an environment, that is, a machine with a server. Its name is `hostile`, its server [`HOSTILE_SERVER`].
fn configure(home: &Path) {
    fs::write(home.join("server.py"), HOSTILE_SERVER).unwrap();
    let toml = "[[environments]]\nid = \"hostile\"\nprogram = \"python3\"\nargs = [\"server.py\"]\ncwd = \".\"\n";
    fs::write(home.join("environments.toml"), toml).unwrap();
}

#[tokio::test]
async fn error_texts_of_a_server_cannot_control_the_terminal() {
    let home = tempfile::tempdir().unwrap();
    configure(home.path());
    // The commands print an error without its `(os error 5)`.
    let escaped = "no\\u{1b}]0;owned\\u{7}\\r\\nexec-server: all is well\\u{9b}2J";
    for args in [
        &["cat", "hostile:/x"][..],
        &["ls", "hostile:/x"],
        &["rm", "hostile:/x"],
        &["mkdir", "hostile:/x"],
        &["cp", "hostile:/x", "y"],
        &["run", "-e", "hostile", "--", "true"],
        &["mcp-stdio", "-e", "hostile", "--", "true"],
        &["search", "x", "hostile:/x"],
        &["watch", "hostile:/x"],
    ] {
        let mut command = bare_command();
        command.args(args).env("EXEC_SERVER_HOME", home.path()).current_dir(home.path());
        let (out, stderr, _) = text_and_code(&wait_for_output(command.spawn().unwrap()).await);
        assert_eq!((out.as_str(), stderr.lines().count()), ("", 1), "{args:?}: {stderr:?}");
        assert!(stderr.ends_with(&format!("{escaped}\n")), "{args:?}: {stderr:?}");
    }
}
