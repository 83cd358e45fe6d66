//! Machines with and without namespaces and Landlock. On each of them a policy is either enforced or refused, and
//! `exec-server doctor` says which.

use std::net::TcpListener;
use std::path::Path;

use testkit::{Client, TestServer, Value, base64, is_alive, json};

use crate::machines::{Machine, Present};
use crate::policies::{path_entry, restricted, special_entry};

/// The sandbox with which every file may be read. `writable` may be written, if it is given.
fn sandbox(writable: Option<&Path>) -> Value {
    let writable = writable.map(|path| path_entry(&format!("file://{}", path.display()), "write"));
    let read_all = special_entry(json!({"kind": "root"}), "read");
    restricted([read_all].into_iter().chain(writable).collect(), "restricted")
}

/// A workspace and a directory beside it, a server, and a connection.
struct Scene {
    folder: tempfile::TempDir,
    listener: TcpListener,
    _server: TestServer,
    client: Client,
}

impl Scene {
    async fn new(machine: Machine) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["workspace", "outside"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let server = machine.server().await;
        let client = server.client().await;
        Self { folder, listener: TcpListener::bind("127.0.0.1:0").unwrap(), _server: server, client }
    }

    fn workspace_write(&self) -> Value {
        sandbox(Some(&self.folder.path().join("workspace")))
    }

    fn start_params(&self, process: &str, script: &str, sandbox: &Value) -> Value {
        let mut params = Client::start_params(process, &["bash", "-c", script]);
        params["cwd"] = json!(format!("file://{}", self.folder.path().display()));
        params["sandbox"] = sandbox.clone();
        params
    }

    async fn run(&mut self, process: &str, script: &str, sandbox: &Value) -> Result<String, String> {
        let answer = self.client.request("process/start", self.start_params(process, script, sandbox)).await;
        if let Some(error) = answer.get("error") {
            assert_eq!(error["code"], -32602, "{answer}");
            return Err(error["message"].as_str().unwrap().to_owned());
        }
        let kind = if sandbox.is_null() { "none" } else { "linuxSeccomp" };
        assert_eq!(answer["result"]["sandboxType"], kind, "{answer}");
        Ok(String::from_utf8(self.client.outcome(process).await.stdout).unwrap())
    }

    /// What a command with this sandbox really can do, or why it is refused.
    async fn abilities(&mut self, process: &str, sandbox: &Value) -> Result<String, String> {
        let port = self.listener.local_addr().unwrap().port();
        let script = format!(
            "exec 2> /dev/null; cat /etc/passwd > /dev/null && echo read
             echo x > workspace/{process} && echo workspace
             echo x > outside/{process} && echo outside
             exec 3<>/dev/tcp/127.0.0.1/{port} && echo network"
        );
        let output = self.run(process, &script, sandbox).await?;
        for (name, word) in [("workspace", "workspace"), ("outside", "outside")] {
            let exists = self.folder.path().join(name).join(process).exists();
            assert_eq!(exists, output.contains(word), "what the command says is what has happened: {output}");
        }
        Ok(output.lines().collect::<Vec<_>>().join(" "))
    }
}

#[tokio::test]
async fn each_machine_enforces_a_policy_or_refuses_it_and_doctor_agrees() {
    use Present::{No, Yes};
    for (namespaces, landlock, expected_policies) in
        [(Yes, Yes, "all"), (Yes, No, "all"), (No, Yes, "onlyLandlock"), (No, No, "none")]
    {
        let machine = Machine::imitate(namespaces, landlock).await;
        let (_, report, code) = machine.doctor().await;
        assert_eq!((&report["policies"], code), (&json!(expected_policies), Some(i32::from(namespaces == No))));
        assert_eq!(report["namespaces"]["ok"], json!(namespaces == Yes), "{report}");
        assert_eq!(report["landlock"]["ok"], json!(landlock == Yes), "{report}");

        let mut scene = Scene::new(machine).await;
        let everything = scene.abilities("unconfined", &Value::Null).await;
        assert_eq!(everything.unwrap(), "read workspace outside network", "{machine:?}");

        let read_only = scene.abilities("read-only", &sandbox(None)).await;
        match expected_policies {
            "none" => {
                let refusal = read_only.unwrap_err();
                assert!(refusal.contains("; Landlock is no substitute: the kernel of this machine has no Landlock"));
            }
            _ => assert_eq!(read_only.unwrap(), "read", "{machine:?}"),
        }
        let workspace_write = scene.workspace_write();
        let writing = scene.abilities("workspace-write", &workspace_write).await;
        if expected_policies == "all" {
            assert_eq!(writing.unwrap(), "read workspace", "{machine:?}");
        } else {
            let refusal = writing.unwrap_err();
            let expected = format!(
                "failed to prepare process sandbox: user namespaces are disabled on this machine; enable them as root \
                 with `sysctl -w user.max_user_namespaces=15000`; Landlock is no substitute: the policy allows writing to \
                 {}/workspace,",
                scene.folder.path().display()
            );
            assert!(refusal.starts_with(&expected), "{refusal}");
        }
    }
}

#[tokio::test]
async fn without_namespaces_file_operations_with_a_policy_are_refused() {
    let machine = Machine::imitate(Present::No, Present::Yes).await;
    let mut scene = Scene::new(machine).await;
    let file = format!("file://{}/outside/file", scene.folder.path().display());
    let params = json!({"path": file, "dataBase64": base64("x"), "sandbox": sandbox(None)});
    let error = scene.client.call_error("fs/writeFile", params).await;
    assert_eq!(error["code"], -32600, "{error}");
    let text = error["message"].as_str().unwrap();
    assert!(text.ends_with("; file operations with a policy need user namespaces"), "{text}");
    assert!(!scene.folder.path().join("outside/file").exists());
    let read =
        scene.client.call_error("fs/readFile", json!({"path": "file:///etc/passwd", "sandbox": sandbox(None)}));
    assert_eq!(read.await["code"], -32600);
    scene.client.call("fs/writeFile", json!({"path": file, "dataBase64": base64("x")})).await;
}

#[tokio::test]
async fn a_command_without_a_pid_namespace_ends_with_all_its_descendants() {
    let machine = Machine::imitate(Present::No, Present::Yes).await;
    let mut scene = Scene::new(machine).await;
    for process in ["first", "second"] {
        let script = "setsid sleep 1000 > /dev/null & echo $!; wait";
        let params = scene.start_params(process, script, &sandbox(None));
        scene.client.call("process/start", params).await;
        let escaped: u32 = scene.client.output_until(process, "\n").await.trim().parse().unwrap();
        assert!(is_alive(escaped));
        scene.client.call("process/terminate", json!({"processId": process})).await;
        assert!(!is_alive(escaped));
    }
}

#[tokio::test]
async fn a_client_can_ask_for_landlock_and_is_refused_what_it_cannot_enforce() {
    use Present::{No, Yes};
    let machine = Machine::imitate(Yes, Yes).await;
    let asks_for_landlock = |mut sandbox: Value| {
        sandbox["useLegacyLandlock"] = json!(true);
        sandbox
    };
    let mut scene = Scene::new(machine).await;
    let own = std::fs::read_link("/proc/self/ns/mnt").unwrap().display().to_string();
    let namespace = "readlink /proc/self/ns/mnt";
    let read_only = asks_for_landlock(sandbox(None));
    assert_eq!(scene.run("landlock", namespace, &read_only).await.unwrap().trim(), own);
    assert_ne!(scene.run("namespaces", namespace, &sandbox(None)).await.unwrap().trim(), own);
    assert_eq!(scene.abilities("abilities", &read_only).await.unwrap(), "read");
    let workspace_write = asks_for_landlock(scene.workspace_write());
    let refusal = scene.abilities("refused", &workspace_write).await.unwrap_err();
    let expected = "failed to prepare process sandbox: the request asks for Landlock (`useLegacyLandlock`), which \
                    cannot enforce it: the policy allows writing to";
    assert!(refusal.starts_with(expected), "{refusal}");

    let mut scene = Scene::new(Machine::imitate(Yes, No).await).await;
    let refusal = scene.abilities("refused", &read_only).await.unwrap_err();
    assert!(refusal.contains("which cannot enforce it: the kernel of this machine has no Landlock"), "{refusal}");
}
