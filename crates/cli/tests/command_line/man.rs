//! The command `man`, which prints or writes the manual pages of the program and of its commands.

use std::collections::BTreeSet;

use testkit::run_to_end;

/// Runs `exec-server man` with these arguments, and returns its stdout.
async fn man(args: &[&str]) -> String {
    let all: Vec<&str> = ["man"].iter().chain(args).copied().collect();
    let output = run_to_end(&all).await;
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn the_page_of_the_program_has_every_limit_and_names_the_pages_of_the_commands() {
    let page = man(&[]).await;
    assert!(page.starts_with(".TH exec-server 1 "), "{page}");
    let limits = String::from_utf8(run_to_end(&["--help-limits"]).await.stdout).unwrap();
    let flags: Vec<&str> = limits.lines().filter_map(|line| line.strip_prefix("  --")?.split(' ').next()).collect();
    assert!(flags.len() > 20, "{limits}");
    for flag in flags {
        assert!(page.contains(&format!("\\fB\\-\\-{}\\fR", flag.replace('-', "\\-"))), "{flag}");
    }
    assert!(page.contains("\nexec\\-server\\-mcp\\-stdio(1)\n"), "{page}");
}

#[tokio::test]
async fn the_page_of_a_command_has_its_flags_examples_and_exit_codes() {
    let page = man(&["run"]).await;
    assert!(page.starts_with(".TH exec-server-run 1 "), "{page}");
    for part in ["\\fB\\-\\-background\\-idle\\fR", ".SH \"EXIT STATUS\"\n", ".SH EXAMPLES\n", "EXEC_SERVER_CA_FILE"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn an_unknown_command_has_no_page() {
    let output = run_to_end(&["man", "nothing"]).await;
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(
        complaint.starts_with("exec-server: there is no command `nothing`; there are: run, shell, "),
        "{complaint}"
    );
    assert_eq!((output.stdout, output.status.code()), (vec![], Some(1)));
}

#[tokio::test]
async fn man_dir_writes_one_file_for_each_page_and_fails_if_it_cannot_make_the_directory() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("share/man/man1");
    man(&["--dir", directory.to_str().unwrap()]).await;
    let entries = std::fs::read_dir(&directory).unwrap();
    let written: BTreeSet<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let help = String::from_utf8(run_to_end(&["--help"]).await.stdout).unwrap();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = commands.map(|line| format!("exec-server-{}.1", line.trim_start().split(' ').next().unwrap()));
    assert_eq!(
        written,
        names
            .chain(["exec-server.1", "exec-server-env-show.1", "exec-server-sandbox-explain.1"].map(str::to_owned))
            .collect()
    );
    assert_eq!(std::fs::read_to_string(directory.join("exec-server-cp.1")).unwrap(), man(&["cp"]).await);

    let output = run_to_end(&["man", "--dir", "/dev/null/x"]).await;
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "exec-server: cannot make /dev/null/x: Not a directory\n");
    assert_eq!(output.status.code(), Some(1));
}
