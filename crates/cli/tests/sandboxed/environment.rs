//! The environment and the working directory of a command in a sandbox.

use testkit::{TestServer, json};

use crate::{Workspace, run, start_params};

#[tokio::test]
async fn an_environment_policy_applies_in_a_sandbox() {
    let variables = [("PATH", "/usr/bin:/bin"), ("API_KEY", "x"), ("EDITOR", "vi")];
    let server = TestServer::start_with(&[], |command| command.env_clear().envs(variables)).await;
    let workspace = Workspace::new();
    let mut client = server.client().await;
    let policy = |inherit: &str, ignore_default_excludes: bool| {
        json!({"inherit": inherit, "ignoreDefaultExcludes": ignore_default_excludes, "exclude": [],
            "set": {"SET": "by policy"}, "includeOnly": []})
    };
    for (process, env_policy, expected) in [
        ("without", json!(null), &["OWN=1"][..]),
        ("none", policy("none", false), &["OWN=1", "SET=by policy"]),
        ("core", policy("core", false), &["OWN=1", "PATH=/usr/bin:/bin", "SET=by policy"]),
        ("all", policy("all", false), &["EDITOR=vi", "OWN=1", "PATH=/usr/bin:/bin", "SET=by policy"]),
        ("keys", policy("all", true), &["API_KEY=x", "EDITOR=vi", "OWN=1", "PATH=/usr/bin:/bin", "SET=by policy"]),
    ] {
        let mut params = start_params(process, "", &workspace.policy());
        params["argv"] = json!(["/usr/bin/env"]);
        params["env"] = json!({"OWN": "1"});
        params["envPolicy"] = env_policy;
        let ended = run(&mut client, params).await;
        let mut lines: Vec<_> = ended.output.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, expected, "{process}");
    }
}

#[tokio::test]
async fn a_command_without_a_path_is_searched_in_the_usual_directories() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    for (process, argv) in
        [("absolute", json!(["/bin/true"])), ("searched", json!(["true"])), ("env", json!(["env"]))]
    {
        let mut params = start_params(process, "", &workspace.policy());
        params["argv"] = argv;
        params["env"] = json!({});
        let ended = run(&mut client, params).await;
        assert_eq!((ended.output.as_str(), &ended.exited["exitCode"]), ("", &json!(0)), "{process}");
    }
}

#[tokio::test]
async fn a_working_directory_may_be_a_link_to_the_workspace() {
    let (server, workspace, beside) = (TestServer::start().await, Workspace::new(), Workspace::new());
    std::os::unix::fs::symlink(workspace.path(), beside.path().join("link")).unwrap();
    let mut client = server.client().await;
    let mut params = start_params("p", "pwd -P; echo x > made", &workspace.policy());
    params["cwd"] = json!(format!("{}/link", beside.uri()));
    let ended = run(&mut client, params).await;
    let real = workspace.path().canonicalize().unwrap();
    assert_eq!((ended.output, &ended.exited["exitCode"]), (format!("{}\n", real.display()), &json!(0)));
    assert_eq!(std::fs::read_to_string(real.join("made")).unwrap(), "x\n");
}
