//! The progress line of `cp` and `search`. It is shown on a terminal only, and removed when the command ends.

use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use testkit::{CuttingProxy, Terminal, TestServer};

use crate::support::{command, wait_for_output};

/// Speed of the connection: so slow that a progress line is shown, and so fast that a test takes only a few seconds.
const BYTES_PER_SECOND: u64 = 1_500_000;

/// The width of a [`Terminal`].
const COLUMNS: usize = 80;

/// A server behind a slow connection, and the folder in which the server and the commands run.
struct SlowServer {
    _server: TestServer,
    proxy: CuttingProxy,
    folder: tempfile::TempDir,
}

impl SlowServer {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = TestServer::start_with(&[], |command| command.current_dir(folder.path())).await;
        let proxy = CuttingProxy::start(server.address()).await;
        proxy.slow_down(BYTES_PER_SECOND);
        Self { _server: server, proxy, folder }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A terminal in the folder, in which this command runs against the server.
    fn terminal(&self, args: &[&str]) -> Terminal {
        let url = self.proxy.url();
        let args: Vec<&str> = args.iter().copied().chain(["--connect", &url]).collect();
        Terminal::start(&args, |command| command.current_dir(self.path()))
    }
}

#[tokio::test]
async fn a_copy_in_either_direction_shows_bytes_rate_and_time_left_and_leaves_nothing_on_the_screen() {
    let server = SlowServer::start().await;
    std::fs::write(server.path().join("here"), vec![7; 2 << 20]).unwrap();
    for args in [["cp", "here", ":there"], ["cp", ":there", "back"]] {
        let mut terminal = server.terminal(&args);
        let mut shown = terminal.wait_for_text("%  ").await;
        shown += &terminal.wait_for_text("of 2.00 MiB  ").await;
        shown += &terminal.wait_for_text("/s  ETA ").await;
        assert!(terminal.wait_for_end().await.success());
        shown += &terminal.screen_after_end().await;
        assert_eq!(screen_rows(&shown), [""], "{shown:?}");
    }
    assert_eq!(std::fs::read(server.path().join("back")).unwrap(), vec![7; 2 << 20]);
}

#[tokio::test]
async fn a_copy_of_a_tree_counts_files_and_prints_a_warning_in_a_row_of_its_own() {
    let server = SlowServer::start().await;
    let tree = server.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for number in 0..20 {
        std::fs::write(tree.join(format!("{number:02}")), vec![number; 150_000]).unwrap();
    }
    mknodat(CWD, tree.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let mut terminal = server.terminal(&["cp", "-r", "tree", ":copy"]);
    let mut shown = terminal.wait_for_text(" files").await;
    assert_eq!(terminal.wait_for_end().await.code(), Some(1));
    shown += &terminal.screen_after_end().await;
    let complaint = "exec-server: left out tree/pipe: it is neither file, directory nor link";
    assert_eq!(screen_rows(&shown), [complaint, ""], "{shown:?}");
}

#[tokio::test]
async fn a_copy_that_is_interrupted_or_quiet_leaves_a_clean_screen() {
    let server = SlowServer::start().await;
    std::fs::write(server.path().join("here"), vec![7; 20 << 20]).unwrap();
    let mut terminal = server.terminal(&["cp", "here", ":there"]);
    let mut shown = terminal.wait_for_text("/s  ETA ").await;
    terminal.type_keys("\x03");
    assert_eq!(terminal.wait_for_end().await.code(), Some(130));
    shown += &terminal.screen_after_end().await;
    assert_eq!(screen_rows(&shown), [""], "{shown:?}");

    std::fs::write(server.path().join("here"), vec![7; 1 << 20]).unwrap();
    let mut terminal = server.terminal(&["cp", "-q", "here", ":there"]);
    assert!(terminal.wait_for_end().await.success());
    assert_eq!(terminal.screen_after_end().await, "");
}

#[tokio::test]
async fn the_progress_line_of_a_search_does_not_mix_with_its_results() {
    let server = SlowServer::start().await;
    let tree = server.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    // `-l` prints only the names of files, but the server sends each matching line, so the search takes a while.
    let line = format!("needle {}\n", "x".repeat(4000));
    for number in 0..600 {
        std::fs::write(tree.join(format!("{number:03}")), &line).unwrap();
    }
    let mut terminal = server.terminal(&["search", "-l", "needle", "tree"]);
    let mut shown = terminal.wait_for_text("searching  00:00:0").await;
    shown += &terminal.wait_for_text("found").await;
    assert!(terminal.wait_for_end().await.success());
    shown += &terminal.screen_after_end().await;
    let mut found = screen_rows(&shown);
    assert_eq!(found.pop().as_deref(), Some(""), "{shown:?}");
    found.sort();
    let expected: Vec<String> = (0..600).map(|number| format!("tree/{number:03}")).collect();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn without_a_terminal_there_is_no_progress_line() {
    let server = SlowServer::start().await;
    std::fs::write(server.path().join("here"), vec![7; 1 << 20]).unwrap();
    let url = server.proxy.url();
    let mut copy = command(&["cp", "here", ":there", "--connect", &url]);
    let output = wait_for_output(copy.current_dir(server.path()).spawn().unwrap()).await;
    assert_eq!((output.stdout, output.stderr, output.status.code()), (vec![], vec![], Some(0)));
}

/// The rows on the screen of a terminal of 80 columns that was sent this text. Executes the escape sequences that the progress line
/// uses, and ignores colours.
fn screen_rows(shown: &str) -> Vec<String> {
    let mut rows = vec![String::new()];
    let (mut row, mut column) = (0, 0);
    let mut rest = shown;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '\r' => column = 0,
            '\n' => {
                row += 1;
                rows.resize(rows.len().max(row + 1), String::new());
            }
            '\x1b' => {
                let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                let count = rest[1..end].parse().unwrap_or(1);
                match &rest[end..=end] {
                    "A" => row = row.saturating_sub(count),
                    "K" if &rest[1..end] == "2" => rows[row].clear(),
                    "K" => rows[row] = rows[row].chars().take(column).collect(),
                    "m" => {}
                    other => panic!("the terminal was sent {other:?}"),
                }
                rest = &rest[end + 1..];
            }
            printed => {
                if column == COLUMNS {
                    (row, column) = (row + 1, 0);
                    rows.resize(rows.len().max(row + 1), String::new());
                }
                let mut text: Vec<char> = rows[row].chars().collect();
                text.resize(text.len().max(column + 1), ' ');
                text[column] = printed;
                rows[row] = text.into_iter().collect();
                column += 1;
            }
        }
    }
    rows.iter().map(|row| row.trim_end().to_owned()).collect()
}
