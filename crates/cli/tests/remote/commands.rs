//! Each command of the command line, through the relay.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use testkit::{Signal, Terminal, eventually, is_alive, send_signal};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::support::{
    CommandEnd, ENVIRONMENT, RemoteFixture, finish, finish_with_input, prepare_client, read_pid, wait_for_end,
};

#[tokio::test]
async fn run_has_the_output_and_the_exit_code_of_the_command() {
    let remote = RemoteFixture::start().await;
    let script = "echo out; echo err >&2; exit 7";
    let expected = CommandEnd { stdout: "out\n".into(), stderr: "err\n".into(), code: Some(7) };
    assert_eq!(remote.run(&["run", "--", "sh", "-c", script]).await, expected);
    assert_eq!(remote.run(&["run", "--", "sh", "-c", "kill -9 $$"]).await.code, Some(137));
    assert_eq!(remote.run(&["run", "--timeout", "100ms", "--", "sleep", "600"]).await.code, Some(124));
    assert_eq!(remote.run(&["run", "--", "/etc/passwd"]).await.code, Some(126));
    let missing = remote.run(&["run", "--", "no-such-program"]).await;
    assert_eq!(
        (missing.stderr.as_str(), missing.code),
        ("exec-server: no-such-program: command not found\n", Some(127))
    );
    let cwd = remote.folder().to_str().unwrap();
    let variables = remote.run(&["run", "--cwd", cwd, "--env", "A=b c", "--", "sh", "-c", "echo $PWD $A"]).await;
    assert_eq!(variables, CommandEnd::printed(format!("{cwd} b c\n"), 0));
    assert_eq!(remote.service.violations(), [""; 0]);
}

#[tokio::test]
async fn input_and_output_of_megabytes_arrive_as_they_are() {
    let remote = RemoteFixture::start().await;
    let input: Vec<u8> =
        (0..6_000_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let output = finish_with_input(&mut remote.command(&["run", "--", "cat"]), input.clone()).await;
    assert!(output.stdout == input && output.stderr.is_empty(), "{} bytes", output.stdout.len());
    assert_eq!(output.status.code(), Some(0));
}

#[tokio::test]
async fn signals_to_run_reach_the_command() {
    let remote = RemoteFixture::start().await;
    let script = "trap 'echo got TERM; exit 40' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child = remote.command(&["run", "--", "bash", "-c", script]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
    send_signal(child.id().unwrap(), Signal::TERM);
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("got TERM"));
    assert_eq!(wait_for_end(child).await.status.code(), Some(40));
}

#[tokio::test]
async fn no_process_is_left_when_run_is_killed() {
    let remote = RemoteFixture::with_args(&["--session-ttl", "100ms"]).await;
    let script = format!("sleep 600 & echo $! > {}; wait", remote.path("pid").display());
    let mut child = remote.command(&["run", "--", "sh", "-c", &script]).spawn().unwrap();
    let pid = read_pid(&remote.path("pid")).await;
    child.kill().await.unwrap();
    eventually("the process of the command is gone", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn a_shell_works_in_the_terminal_of_the_user() {
    let remote = RemoteFixture::start().await;
    let mut terminal = Terminal::start(&["shell", "-e", ENVIRONMENT, "--env", "PS1=ready>"], |command| {
        prepare_client(command, &remote.service, remote.folder()).env("SHELL", "/bin/sh")
    });
    terminal.type_keys("PS1='now''> '\r");
    terminal.wait_for_text("now> ").await;
    terminal.type_keys("tty; stty size\r");
    terminal.wait_for_text("/dev/pts/").await;
    terminal.wait_for_text("24 80\r\n").await;
    terminal.resize(33, 101);
    terminal.type_keys("until [ \"$(stty size)\" = '33 101' ]; do sleep 0.1; done; echo res''ized\r");
    terminal.wait_for_text("resized").await;
    terminal.type_keys("exit 5\r");
    assert_eq!(terminal.wait_for_end().await.code(), Some(5));
    assert!(!terminal.is_raw());
}

#[tokio::test]
async fn files_and_trees_are_copied_both_ways_and_listed() {
    let remote = RemoteFixture::start().await;
    fs::create_dir_all(remote.path("tree/sub")).unwrap();
    fs::write(remote.path("tree/script"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(remote.path("tree/script"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::write(remote.path("tree/sub/data"), vec![7; 3_000_000]).unwrap();
    let (local, there, back) = (remote.path("tree"), remote.path("there"), remote.path("back"));
    let [local, there, back] = [&local, &there, &back].map(|path| path.to_str().unwrap());
    let quiet = CommandEnd::printed("", 0);
    assert_eq!(remote.run(&["cp", "-r", local, &format!(":{there}")]).await, quiet);
    assert_eq!(remote.run(&["cp", "-r", &format!(":{there}"), back]).await, quiet);
    for copy in ["there", "back"] {
        assert!(fs::read(remote.path(copy).join("sub/data")).unwrap() == [7; 3_000_000]);
        let mode = fs::metadata(remote.path(copy).join("script")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o750);
    }
    assert_eq!(remote.run(&["ls", there]).await, CommandEnd::printed("script\nsub\n", 0));
    assert_eq!(remote.run(&["cat", &format!("{there}/script")]).await, CommandEnd::printed("#!/bin/sh\n", 0));
    assert_eq!(remote.run(&["mkdir", &format!("{there}/new")]).await, quiet);
    assert_eq!(remote.run(&["rm", "-r", there]).await, quiet);
    assert!(!remote.path("there").exists());
    let missing = remote.run(&["cat", there]).await;
    assert!(missing.code != Some(0) && missing.stderr.contains("No such file"), "{missing:?}");
    // A path can name the environment.
    let named = finish(remote.command_without_target("ls").arg(format!("{ENVIRONMENT}:{back}"))).await;
    assert_eq!(named, CommandEnd::printed("script\nsub\n", 0));
}

#[tokio::test]
async fn search_prints_matches() {
    let remote = RemoteFixture::start().await;
    fs::create_dir_all(remote.path("tree/sub")).unwrap();
    fs::write(remote.path("tree/sub/b.txt"), "one\ntwo\n").unwrap();
    let found = remote.run(&["search", "two", remote.path("tree").to_str().unwrap()]).await;
    let file = remote.path("tree/sub/b.txt");
    assert_eq!(found, CommandEnd::printed(format!("{}:2:two\n", file.display()), 0));
    let none = remote.run(&["search", "nothing", remote.path("tree").to_str().unwrap()]).await;
    assert_eq!(none, CommandEnd::printed("", 1));
}

#[tokio::test]
async fn watch_prints_changes() {
    let remote = RemoteFixture::start().await;
    fs::create_dir(remote.path("tree")).unwrap();
    let mut child = remote.command(&["watch", remote.path("tree").to_str().unwrap()]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut number = 0;
    // A change before the watch has begun is not reported, so there are changes until one is.
    let line = loop {
        number += 1;
        assert!(number < 300, "nothing is printed");
        fs::write(remote.path("tree").join(number.to_string()), "").unwrap();
        let wait = std::time::Duration::from_millis(100);
        if let Ok(line) = tokio::time::timeout(wait, lines.next_line()).await {
            break line.unwrap().unwrap();
        }
    };
    assert!(line.contains(remote.path("tree").to_str().unwrap()), "{line}");
    send_signal(child.id().unwrap(), Signal::TERM);
    assert_eq!(wait_for_end(child).await.status.code(), Some(143));
}

#[tokio::test]
async fn mcp_stdio_passes_lines_on_in_both_directions() {
    let remote = RemoteFixture::start().await;
    let server = r#"while read -r line; do echo "{\"answer\":$line}"; done; exit 3"#;
    let mut command = remote.command(&["mcp-stdio", "--", "sh", "-c", server]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for leg in [testkit::service::Leg::Harness, testkit::service::Leg::Executor] {
        stdin.write_all(b"{\"id\":1}\n").await.unwrap();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("{\"answer\":{\"id\":1}}"));
        remote.service.cut(leg);
    }
    drop(stdin);
    let end = CommandEnd::from(wait_for_end(child).await);
    assert_eq!((end.stderr.as_str(), end.code), ("", Some(3)));
    assert_eq!(remote.handshakes(), 1);
}
