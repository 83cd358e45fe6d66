//! An environment that leads to programs and libraries of somebody else. The server must not run them outside the
//! sandbox while it makes the sandbox or starts the command. In the sandbox they can write only what the policy allows.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use testkit::{Client, TestServer, Value, eventually, json};

use crate::{Ended, Workspace, run, start_params, until_closed};

/// A directory that no policy of these tests makes writable. The programs and the library in it leave a mark if they can.
struct Trap {
    folder: TempDir,
}

impl Trap {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn mark(&self) -> PathBuf {
        self.folder.path().join("mark")
    }

    /// Makes programs that leave a mark, and returns a `PATH` that begins with their directory.
    fn programs(&self) -> String {
        for name in ["bwrap", "exec-server", "unshare", "sh", "true"] {
            let program = self.folder.path().join(name);
            let script = format!("#!/bin/bash\necho false {name}\necho {name} >> {}\n", self.mark().display());
            std::fs::write(&program, script).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        format!("{}:/usr/bin:/bin", self.folder.path().display())
    }

    /// Builds a library that leaves a mark when it is loaded. If there is a variable `ANNOUNCE`, it also writes to stdout.
    fn library(&self) -> PathBuf {
        let (source, library) = (self.folder.path().join("mark.c"), self.folder.path().join("mark.so"));
        let text = format!(
            r#"
            #include <fcntl.h>
            #include <stdlib.h>
            #include <unistd.h>
            __attribute__((constructor)) static void leave_mark(void) {{
                if (getenv("ANNOUNCE")) (void)!write(1, "loaded\n", 7);
                int file = open("{}", O_WRONLY | O_CREAT | O_APPEND, 0644);
                if (file >= 0) {{ (void)!write(file, "loaded\n", 7); close(file); }}
            }}
            "#,
            self.mark().display()
        );
        std::fs::write(&source, text).unwrap();
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap();
        assert!(built.success());
        library
    }
}

/// Runs the same command without a sandbox.
async fn run_unconfined(client: &mut Client, mut params: Value) -> Ended {
    params["sandbox"] = json!(null);
    params["processId"] = json!("unconfined");
    assert_eq!(client.call("process/start", params).await["sandboxType"], "none");
    until_closed(client, "unconfined").await
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn programs_that_the_path_leads_to_are_not_run_outside() {
    let (workspace, trap) = (Workspace::new(), Trap::new());
    let path = trap.programs();
    let server = TestServer::start_with(&[], |command| command.env("PATH", &path)).await;
    let mut client = server.client().await;
    for (process, argv) in [("sh", json!(["sh", "-c", "exit 3"])), ("true", json!(["true"]))] {
        let mut params = start_params(process, "", &workspace.policy());
        params["argv"] = argv;
        params["env"]["PATH"] = json!(path);
        let mark = trap.mark();
        let ended = run(&mut client, params.clone()).await;
        let program = trap.folder.path().join(process);
        let refusal = format!("{}: line 3: {}: Read-only file system", program.display(), mark.display());
        assert_eq!((ended.output, mark.exists()), (format!("false {process}\n{refusal}\n"), false));

        let ended = run_unconfined(&mut client, params).await;
        assert_eq!(ended.output, format!("false {process}\n"));
        assert_eq!(read(&mark), format!("{process}\n"));
        std::fs::remove_file(mark).unwrap();
        // The next session makes a sandbox of its own.
        client = server.client().await;
    }
    // An operation on files makes a sandbox too.
    client
        .call("fs/createDirectory", json!({"path": format!("{}/d", workspace.uri()), "sandbox": workspace.policy()}))
        .await;
    assert!(workspace.path().join("d").is_dir() && !trap.mark().exists());
}

#[tokio::test]
async fn a_library_that_is_preloaded_is_not_loaded_outside() {
    let (workspace, trap) = (Workspace::new(), Trap::new());
    let library = trap.library();
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let mut params = start_params("p", "", &workspace.policy());
    params["argv"] = json!(["/bin/true"]);
    params["env"]["LD_PRELOAD"] = json!(library);
    params["env"]["ANNOUNCE"] = json!("1");
    let ended = run(&mut client, params.clone()).await;
    assert_eq!(ended.output, "loaded\n", "the command itself gets its environment");
    assert!(!trap.mark().exists());
    assert_eq!(run_unconfined(&mut client, params).await.output, "loaded\n");
    assert_eq!(read(&trap.mark()), "loaded\n");
}

#[tokio::test]
async fn the_launcher_does_not_load_what_is_preloaded_into_the_server() {
    let (workspace, trap) = (Workspace::new(), Trap::new());
    let library = trap.library();
    let server = TestServer::start_with(&[], |command| command.env("LD_PRELOAD", &library)).await;
    let mut client = server.client().await;
    // The server and its guard have the environment that the user of the server gave them.
    eventually("the guard has begun", || (read(&trap.mark()) == "loaded\nloaded\n").then_some(())).await;
    std::fs::remove_file(trap.mark()).unwrap();
    let ended = run(&mut client, start_params("p", "echo on", &workspace.policy())).await;
    assert_eq!((ended.output.as_str(), trap.mark().exists()), ("on\n", false));
}
