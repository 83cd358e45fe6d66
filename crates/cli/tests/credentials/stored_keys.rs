//! `login` and `logout`.

use std::os::unix::fs::MetadataExt as _;

use testkit::{Terminal, TestService, json};

use crate::support::{ENVIRONMENT, Ended, User, finish};

const SERVICE: &str = "https://service.example";

async fn login(user: &User, key: &str) -> Ended {
    user.run_with_stdin(&["login", SERVICE], key.as_bytes()).await
}

#[tokio::test]
async fn a_key_is_stored_for_its_user_only_and_replaced_and_removed() {
    let user = User::new();
    let path = user.store();
    let shown = path.display();
    assert_eq!(login(&user, "key-1\n").await.succeeded(), format!("stored the key for {SERVICE} in {shown}\n"));
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert_eq!(login(&user, "key-2").await.succeeded(), format!("replaced the key for {SERVICE} in {shown}\n"));
    let stored = std::fs::read_to_string(&path).unwrap().parse::<testkit::Value>().unwrap();
    assert_eq!(stored, json!({SERVICE: {"apiKey": "key-2"}}));
    let logout = || user.run(&["logout", "https://SERVICE.example/base/"]);
    assert_eq!(logout().await.succeeded(), format!("removed the key for {SERVICE} from {shown}\n"));
    assert_eq!(logout().await.succeeded(), format!("there was no key for {SERVICE} in {shown}\n"));
    assert!(!std::fs::read_to_string(&path).unwrap().contains("key-2"));
}

#[tokio::test]
async fn a_key_or_a_service_that_cannot_be_used_is_refused_and_the_key_is_not_repeated() {
    let user = User::new();
    for (key, problem) in [
        ("", "the key is empty"),
        (" \n\n", "the key is empty"),
        ("sk-first\nsk-second", "the key must be one line of visible ASCII without spaces"),
        ("sk-\u{1b}[2J", "the key must be one line of visible ASCII without spaces"),
        ("sk-\r\nX-Other: x", "the key must be one line of visible ASCII without spaces"),
        (&"sk-".repeat(2000), "the key is longer than 4096 bytes"),
        (&"sk-".repeat(30_000), "stdin holds more than 64 KiB, so it is not a key"),
    ] {
        let stderr = login(&user, key).await.failed(1);
        assert_eq!(stderr, format!("exec-server: {problem}\n"));
    }
    let output = user.run_with_stdin(&["login", SERVICE], b"sk-\xff").await.failed(1);
    assert!(output.starts_with("exec-server: stdin does not hold UTF-8 text") && !output.contains("sk-"), "{output}");
    for (service, problem) in [
        ("http://service.example", "others could read it on the way; use an https:// address"),
        ("http://10.0.0.1:80/x", "others could read it on the way; use an https:// address"),
        ("wss://service.example", "the address of the service must begin with https://"),
        ("service.example", "the address of the service is not a URL"),
        ("https://", "the address of the service is not a URL"),
    ] {
        let stderr = user.run_with_stdin(&["login", service], b"sk-key").await.failed(1);
        assert!(stderr.contains(problem) && !stderr.contains("sk-key"), "{stderr}");
    }
    for url in
        ["https://me:password@service.example/p?q", "https://me@service.example", "https://:password@service.example"]
    {
        let stderr = user.run_with_stdin(&["login", url], b"k").await.failed(1);
        let expected = "exec-server: the address of the service must not contain a user or a password, because exec-server \
                        does not send them; leave them out\n";
        assert_eq!(stderr, expected);
    }
    assert!(!user.store().exists());
}

#[tokio::test]
async fn a_relative_directory_of_the_variable_is_refused() {
    let user = User::new();
    for variables in [&[("EXEC_SERVER_HOME", "own")][..], &[("HOME", "own")]] {
        let mut login = user.command(&["login", SERVICE]);
        login.current_dir(user.path("home")).envs(variables.iter().copied());
        let stderr = finish(&mut login).await.failed(1);
        let expected =
            "exec-server: there is no directory for keys; set EXEC_SERVER_HOME or HOME to an absolute path\n";
        assert_eq!(stderr, expected);
    }
    assert!(!user.path("home/own").exists() && !user.store().exists());
}

#[tokio::test]
async fn a_user_who_can_read_the_directory_cannot_stop_login_and_logout() {
    let user = User::new();
    login(&user, "key-1").await.succeeded();
    let directory = user.store().parent().unwrap().to_owned();
    std::fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // Another user can open every file that the permissions allow, and lock it.
    let open_to_others = |path: &std::path::PathBuf| std::fs::metadata(path).unwrap().mode() & 0o007 != 0;
    let files = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = files.chain([directory.clone()]).filter(open_to_others).collect();
    assert_eq!(files, [directory]);
    let held = std::fs::File::open(&files[0]).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    login(&user, "key-2").await.succeeded();
    user.run(&["logout", SERVICE]).await.succeeded();
}

#[tokio::test]
async fn logins_at_the_same_time_lose_no_key() {
    const COUNT: usize = 60;
    let user = User::new();
    user.write("key", "key");
    let login = |number| {
        let key = std::fs::File::open(user.path("key")).unwrap();
        user.command(&["login", &format!("https://host-{number}.example")]).stdin(key).spawn().unwrap()
    };
    let logins: Vec<_> = (0..COUNT).map(login).collect();
    for login in logins {
        let output = login.wait_with_output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let stored = std::fs::read_to_string(user.store()).unwrap().parse::<testkit::Value>().unwrap();
    assert_eq!(stored.as_object().unwrap().len(), COUNT);
}

#[tokio::test]
async fn a_terminal_does_not_show_the_key() {
    let user = User::new();
    let home = user.path("home");
    let mut terminal = Terminal::start(&["login", SERVICE], |command| command.env("HOME", &home));
    terminal.wait_for_text("Key for https://service.example (it is not shown): ").await;
    terminal.wait_for_raw_mode(true).await;
    // The rest of a pasted text must not reach the shell.
    terminal.type_keys("secret-of-terminal\necho second-line\n");
    assert!(terminal.wait_for_end().await.success());
    assert!(!terminal.is_raw(), "the echo is on again");
    let screen = terminal.screen_after_end().await;
    assert!(
        screen.contains("stored the key") && !screen.contains("secret") && !screen.contains("second"),
        "{screen:?}"
    );
    assert!(std::fs::read_to_string(user.store()).unwrap().contains("\"secret-of-terminal\""));
}

#[tokio::test]
async fn ctrl_c_at_the_prompt_stores_nothing_and_leaves_the_terminal_as_it_was() {
    let user = User::new();
    let home = user.path("home");
    let mut terminal = Terminal::start(&["login", SERVICE], |command| command.env("HOME", &home));
    terminal.wait_for_raw_mode(true).await;
    terminal.type_keys("half-of-a-key\x03");
    assert_eq!(terminal.wait_for_end().await.code(), Some(130));
    assert!(!terminal.is_raw() && !user.store().exists());
    assert!(!terminal.screen_after_end().await.contains("half"));
}

#[tokio::test]
async fn executor_and_harness_use_the_stored_key_and_a_key_of_another_port_is_not_theirs() {
    let user = User::new();
    let service = TestService::start().await;
    let other = TestService::start().await;
    let login = user.run_with_stdin(&["login", &service.url()], TestService::TOKEN.as_bytes()).await;
    login.succeeded();
    let executor = user.executor(&service, &[]).await;
    let remote = service.url();
    let run = ["run", "-e", ENVIRONMENT, "--", "echo", "through"];
    assert_eq!(user.run_with(&run, &[("EXEC_SERVER_REMOTE", &remote)]).await.succeeded(), "through\n");
    let stderr = user.run_with(&run, &[("EXEC_SERVER_REMOTE", &other.url())]).await.failed(125);
    let origin = other.url().replace("/prefix", "");
    let expected =
        format!("exec-server: there is no credential for {origin}; store a key with `exec-server login {origin}`");
    assert!(stderr.starts_with(&expected), "{stderr}");
    assert!(other.calls().is_empty());
    let log = executor.log();
    assert!(log.len() > 1000 && !log.contains(TestService::TOKEN), "{log}");
}

#[tokio::test]
async fn a_store_that_others_can_read_is_not_used() {
    let user = User::new();
    login(&user, "key-1").await.succeeded();
    std::fs::set_permissions(user.store(), std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    let advice = format!("can be used by other users of this machine; run `chmod 600 {}`", user.store().display());
    for output in [login(&user, "key-2").await, user.run(&["logout", SERVICE]).await] {
        assert!(output.failed(1).contains(&advice));
    }
    let output = user.run(&["whoami", SERVICE]).await;
    assert!(output.code == Some(1) && output.stdout.contains(&advice), "{output:?}");
}
