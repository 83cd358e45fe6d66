//! Tests of searches in real trees: which lines and files are reported, which are skipped, and how a search ends. The
//! *sink* is the callback to which a search passes its results.
#![expect(clippy::unwrap_used, reason = "a failed unwrap in a helper function fails the test")]

mod rules;
mod traps;

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Mutex;

use files::{
    Cancel, CaseSensitivity, FileRoot, HitLine, Pattern, PrepareSearchError, SearchCompletion, SearchHit,
    SearchQuery, SearchSummary,
};
use tempfile::TempDir;

/// A longer line is cut in the results.
const MAX_LINE_BYTES: usize = 4096;
/// The longest line that is searched, and the largest file in which matches may span lines.
const MAX_SEARCHED_BYTES: usize = 8 << 20;

/// Creates a tree with these files and contents.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

/// Runs a search to its end.
fn run(search: SearchQuery) -> (Vec<SearchHit>, SearchSummary) {
    let found = Mutex::new(Vec::new());
    let end = search.prepare(FileRoot::host()).unwrap().run(&Cancel::new(), &|hit| {
        found.lock().unwrap().push(hit);
        ControlFlow::Continue(())
    });
    (found.into_inner().unwrap(), end)
}

/// Runs a search, and returns the files that it reports, relative to the root.
fn names(root: &Path, search: SearchQuery) -> BTreeSet<String> {
    let relative = |path: &Path| path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
    let (found, _) = run(search);
    found
        .iter()
        .map(|hit| match hit {
            SearchHit::File { path } | SearchHit::Lines { path, .. } => relative(path),
        })
        .collect()
}

/// Runs a search, and returns all lines that it reports.
fn lines(search: SearchQuery) -> Vec<HitLine> {
    let (found, end) = run(search);
    assert_eq!(end.errors, []);
    let lines_of = |found| match found {
        SearchHit::Lines { lines, .. } => lines,
        SearchHit::File { .. } => panic!("the search asks for lines"),
    };
    found.into_iter().flat_map(lines_of).collect()
}

fn pattern(text: &str) -> Pattern {
    Pattern { text: text.into(), ..Pattern::default() }
}

fn search(root: &TempDir, pattern: Pattern) -> SearchQuery {
    SearchQuery { pattern: Some(pattern), ..SearchQuery::below(root.path()) }
}

/// A search without a pattern, which reports all files.
fn listing(root: &TempDir) -> SearchQuery {
    SearchQuery::below(root.path())
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_match_is_reported_before_the_rest_of_its_file_is_read() {
    let text = format!("needle\n{}needle\n", "straw\n".repeat(1 << 20));
    let root = tree(&[("large", &text)]);
    let file = fs::OpenOptions::new().write(true).open(root.path().join("large")).unwrap();
    let found = Mutex::new(Vec::new());
    let prepared = search(&root, pattern("needle")).prepare(FileRoot::host()).unwrap();
    prepared.run(&Cancel::new(), &|hit| {
        // Cuts off the second match, which the search must not have read yet.
        file.set_len(1 << 20).unwrap();
        let SearchHit::Lines { lines, .. } = hit else { panic!("the search asks for lines") };
        found.lock().unwrap().extend(lines.iter().map(|line| line.number));
        ControlFlow::Continue(())
    });
    assert_eq!(*found.lock().unwrap(), [1]);
}

#[test]
fn a_line_is_reported_with_its_position_and_its_matches() {
    let root = tree(&[("a.txt", "first\ntwo two\nthree\n")]);
    assert_eq!(
        lines(search(&root, pattern("two"))),
        [HitLine {
            number: 2,
            offset: 6,
            text: b"two two".to_vec(),
            cut: false,
            matches: vec![(0, 3), (4, 7)],
            is_context: false
        }]
    );
}

#[test]
fn context_lines_come_in_order_and_are_marked() {
    let root = tree(&[("a.txt", "1\n2\n3x\n4\n5\n6x\n7")]);
    let found = lines(SearchQuery { context_before: 1, context_after: 1, ..search(&root, pattern("x")) });
    let reported: Vec<_> = found.iter().map(|line| (line.number, line.is_context)).collect();
    assert_eq!(reported, [(2, true), (3, false), (4, true), (5, true), (6, false), (7, true)]);
    assert!(found.iter().all(|line| line.is_context == line.matches.is_empty()));
}

#[test]
fn a_match_that_spans_lines_is_reported_line_by_line() {
    let root = tree(&[("a.txt", "zero\nfoo {\n\n  bar }\nend\n")]);
    let found = lines(search(&root, Pattern { multi_line: true, ..pattern(r"foo \{\s+bar") }));
    let reported: Vec<_> = found.iter().map(|line| (line.number, line.matches.clone())).collect();
    assert_eq!(reported, [(2, vec![(0, 5)]), (3, vec![]), (4, vec![(0, 5)])]);
    assert_eq!(lines(search(&root, pattern(r"foo \{\s+bar"))), []);
}

#[test]
fn case_words_and_fixed_strings_are_respected() {
    let root = tree(&[("a.txt", "Alpha\nalphabet\na.c\nabc\n")]);
    let numbers = |pattern: Pattern| lines(search(&root, pattern)).iter().map(|line| line.number).collect::<Vec<_>>();
    assert_eq!(numbers(pattern("alpha")), [2]);
    assert_eq!(numbers(Pattern { case: CaseSensitivity::Insensitive, ..pattern("ALPHA") }), [1, 2]);
    assert_eq!(numbers(Pattern { case: CaseSensitivity::Smart, ..pattern("alpha") }), [1, 2]);
    assert_eq!(numbers(Pattern { case: CaseSensitivity::Smart, ..pattern("Alpha") }), [1]);
    assert_eq!(numbers(Pattern { word: true, case: CaseSensitivity::Insensitive, ..pattern("alpha") }), [1]);
    assert_eq!(numbers(pattern("a.c")), [3, 4]);
    assert_eq!(numbers(Pattern { fixed_strings: true, ..pattern("a.c") }), [3]);
}

#[test]
fn empty_matches_are_reported() {
    let root = tree(&[("a.txt", "x\n\nlast")]);
    let ranges: Vec<_> = lines(search(&root, pattern("$"))).into_iter().map(|line| line.matches).collect();
    assert_eq!(ranges, [vec![(1, 1)], vec![(0, 0)], vec![(4, 4)]]);
}

#[test]
fn globs_include_and_exclude_files() {
    let root = tree(&[("a.rs", "x"), ("b.txt", "x"), ("deep/c.rs", "x"), ("deep/d_test.rs", "x")]);
    let globs =
        |globs: &[&str]| SearchQuery { globs: globs.iter().map(|&glob| glob.into()).collect(), ..listing(&root) };
    assert_eq!(names(root.path(), globs(&[])), set(&["a.rs", "b.txt", "deep/c.rs", "deep/d_test.rs"]));
    assert_eq!(names(root.path(), globs(&["*.rs"])), set(&["a.rs", "deep/c.rs", "deep/d_test.rs"]));
    assert_eq!(names(root.path(), globs(&["*.rs", "!*_test.rs"])), set(&["a.rs", "deep/c.rs"]));
    assert_eq!(names(root.path(), globs(&["!deep"])), set(&["a.rs", "b.txt"]));
    assert_eq!(names(root.path(), globs(&["/*.rs"])), set(&["a.rs"]));
}

#[test]
fn ignored_and_hidden_files_are_left_out_by_default_and_gitignore_counts_only_in_a_repository() {
    let root =
        tree(&[(".ignore", "i.txt\n"), (".gitignore", "g.txt\n"), ("i.txt", ""), ("g.txt", ""), (".h.txt", "")]);
    assert_eq!(names(root.path(), listing(&root)), set(&["g.txt"]));
    fs::create_dir(root.path().join(".git")).unwrap();
    assert_eq!(names(root.path(), listing(&root)), set(&[]));
    let all = SearchQuery { respect_ignore: false, ..listing(&root) };
    assert_eq!(names(root.path(), all.clone()), set(&["g.txt", "i.txt"]));
    let hidden = SearchQuery { hidden: true, ..all };
    assert_eq!(names(root.path(), hidden), set(&[".ignore", ".gitignore", ".h.txt", "g.txt", "i.txt"]));
}

#[test]
fn depth_file_size_and_matches_per_file_can_be_limited() {
    let root = tree(&[("a", "x\nx\nx\n"), ("d/b", "x\n"), ("large", &"x\n".repeat(1000))]);
    assert_eq!(names(root.path(), SearchQuery { max_depth: Some(1), ..listing(&root) }), set(&["a", "large"]));
    assert_eq!(names(root.path(), SearchQuery { max_file_size: Some(100), ..listing(&root) }), set(&["a", "d/b"]));
    let (_, end) = run(SearchQuery { max_matches_per_file: Some(2), ..search(&root, pattern("x")) });
    assert_eq!((end.files_searched, end.files_matched, end.matches), (3, 3, 5));
}

#[test]
fn the_root_may_be_a_file_or_a_link_and_links_below_it_are_followed_only_if_asked() {
    let root = tree(&[("d/a", "x\n")]);
    assert_eq!(
        lines(SearchQuery { pattern: Some(pattern("x")), ..SearchQuery::below(root.path().join("d/a")) }).len(),
        1
    );
    symlink("d", root.path().join("link")).unwrap();
    assert_eq!(names(root.path(), SearchQuery::below(root.path().join("link"))), set(&["link/a"]));
    assert_eq!(names(root.path(), listing(&root)), set(&["d/a"]));
    let following = SearchQuery { follow_symlinks: true, ..listing(&root) };
    assert_eq!(names(root.path(), following), set(&["d/a", "link/a"]));
}

#[test]
fn a_loop_of_links_is_reported_and_the_search_ends() {
    let root = tree(&[("d/a", "x\n")]);
    symlink("..", root.path().join("d/up")).unwrap();
    let (found, end) = run(SearchQuery { follow_symlinks: true, ..listing(&root) });
    assert_eq!((found.len(), end.error_count), (1, 1));
    assert_eq!(end.errors[0].path, root.path().join("d/up"));
}

#[test]
fn binary_files_and_special_files_are_not_searched() {
    let root = tree(&[("binary", "needle\0needle\n"), ("text", "needle\n")]);
    let pipe = root.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert_eq!(names(root.path(), search(&root, pattern("needle"))), set(&["text"]));
    let search_in_pipe = SearchQuery { pattern: Some(pattern("needle")), ..SearchQuery::below(pipe) };
    assert_eq!(run(search_in_pipe), (vec![], SearchSummary::default()));
}

#[test]
fn a_long_line_is_cut() {
    let root = tree(&[("a", &format!("{}needle", "needle".repeat(10_000)))]);
    let found = lines(search(&root, pattern("needle")));
    assert!(found[0].cut);
    assert_eq!(found[0].text.len(), MAX_LINE_BYTES);
    // The last match is cut too.
    assert_eq!(found[0].matches.len(), MAX_LINE_BYTES.div_ceil(6));
    assert_eq!(found[0].matches.last(), Some(&(4092, 4096)));
}

#[test]
fn many_matches_come_in_order_in_small_batches() {
    let root = tree(&[("a", &"needle in a haystack\n".repeat(10_000))]);
    let (found, end) = run(search(&root, pattern("needle")));
    assert_eq!((end.files_matched, end.matches), (1, 10_000));
    let mut numbers = Vec::new();
    for hit in &found {
        let SearchHit::Lines { lines, .. } = hit else { panic!("{hit:?}") };
        assert!(lines.len() <= 256);
        numbers.extend(lines.iter().map(|line| line.number));
    }
    assert!(numbers.into_iter().eq(1..=10_000));
}

#[test]
fn a_sink_that_returns_break_ends_the_search() {
    let root = tree(&[("a", &"x\n".repeat(100_000)), ("b", &"x\n".repeat(100_000))]);
    let prepared = SearchQuery { threads: Some(1), ..search(&root, pattern("x")) }.prepare(FileRoot::host()).unwrap();
    let calls = Mutex::new(0);
    let end = prepared.run(&Cancel::new(), &|_| {
        *calls.lock().unwrap() += 1;
        ControlFlow::Break(())
    });
    assert_eq!((end.completion, *calls.lock().unwrap()), (SearchCompletion::Stopped, 1));
    assert!(end.matches < 1000, "{end:?}");
}

#[test]
fn a_sink_that_panics_ends_the_search_on_all_threads() {
    let root = tree(&[("a/a", "x\n"), ("b/b", "x\n"), ("c/c", "x\n")]);
    let prepared = SearchQuery { threads: Some(3), ..search(&root, pattern("x")) }.prepare(FileRoot::host()).unwrap();
    let run = || prepared.run(&Cancel::new(), &|_| panic!("on purpose"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
}

#[test]
fn cancelling_ends_the_search() {
    let root = tree(&[("a", &"x\n".repeat(100_000)), ("b", "x")]);
    let prepared = search(&root, pattern("x")).prepare(FileRoot::host()).unwrap();
    let cancel = Cancel::new();
    let end = prepared.run(&cancel, &|_| {
        cancel.cancel();
        ControlFlow::Continue(())
    });
    assert_eq!(end.completion, SearchCompletion::Cancelled);
    assert!(end.matches < 1000, "{end:?}");
    assert_eq!(end.errors, []);
}

#[test]
fn unreadable_files_are_reported_and_the_others_are_searched() {
    // A dangling link that is followed cannot be read, not even by root.
    let root = tree(&[("a", "x\n")]);
    for number in 0..150 {
        symlink("nowhere", root.path().join(format!("broken-{number}"))).unwrap();
    }
    let (found, end) = run(SearchQuery { follow_symlinks: true, ..search(&root, pattern("x")) });
    // All errors are counted, but only the first 100 are listed.
    assert_eq!((found.len(), end.errors.len(), end.error_count), (1, 100, 150));
}

#[test]
fn an_invalid_query_is_refused_with_the_reason() {
    let root = tree(&[]);
    let refusal = |search: SearchQuery| search.prepare(FileRoot::host()).unwrap_err();
    let bad_pattern = refusal(search(&root, pattern("a(")));
    assert!(
        matches!(&bad_pattern, PrepareSearchError::InvalidPattern(text) if text.contains("unclosed group")),
        "{bad_pattern}"
    );
    assert_eq!(bad_pattern.to_string(), "bad pattern: unclosed group");
    let two_lines = refusal(search(&root, pattern("a\n(")));
    assert_eq!(two_lines.to_string(), "bad pattern: unclosed group");
    let line_break = refusal(search(&root, pattern("a\\nb")));
    assert!(matches!(line_break, PrepareSearchError::InvalidPattern(_)), "{line_break}");
    let bad_glob = refusal(SearchQuery { globs: vec!["a[".into()], ..listing(&root) });
    assert!(matches!(&bad_glob, PrepareSearchError::InvalidGlob { glob, .. } if glob == "a["), "{bad_glob}");
    let long = refusal(search(&root, pattern(&format!("({}", "é".repeat(10_000)))));
    assert!(long.to_string().len() < 600, "the error must not repeat the whole pattern: {long}");
    assert!(matches!(
        refusal(SearchQuery { context_after: 21, ..listing(&root) }),
        PrepareSearchError::TooMuchContext { lines: 21 }
    ));
    assert!(matches!(refusal(SearchQuery::below("relative")), PrepareSearchError::Root(_)));
    let missing = refusal(SearchQuery::below(root.path().join("missing")));
    assert!(matches!(missing, PrepareSearchError::Root(error) if error.kind() == std::io::ErrorKind::NotFound));
}

#[test]
fn a_directory_whose_ignore_file_is_special_or_exceeds_a_limit_is_reported_and_not_searched() {
    let root = tree(&[
        ("fine/a", ""),
        ("fifo/b", ""),
        ("device/c", ""),
        ("exclude/d", ""),
        ("worktree/e", ""),
        ("large/f", ""),
        ("deep/h", ""),
        ("directory/.ignore/x", ""),
        ("directory/g", ""),
        ("exclude/.git/info/x", ""),
        ("elsewhere/.ignore", "*"),
    ]);
    let at = |name: &str| root.path().join(name);
    let traps = [
        "fifo/.gitignore",
        "device/.ignore",
        "exclude/.git/info/exclude",
        "elsewhere/commondir",
        "large/.rgignore",
        "deep/.ignore",
    ];
    for fifo in [traps[0], traps[2], traps[3]] {
        assert!(std::process::Command::new("mkfifo").arg(at(fifo)).status().unwrap().success());
    }
    symlink("/dev/zero", at(traps[1])).unwrap();
    fs::write(at("worktree/.git"), format!("gitdir: {}\n", at("elsewhere").display())).unwrap();
    fs::File::create(at(traps[4])).unwrap().set_len(2 << 20).unwrap();
    fs::write(at(traps[5]), format!("{}{}", "{".repeat(20_000), "}".repeat(20_000))).unwrap();

    let (found, end) = run(listing(&root));
    let found: BTreeSet<_> = found
        .iter()
        .map(|hit| match hit {
            SearchHit::File { path } | SearchHit::Lines { path, .. } => {
                path.strip_prefix(root.path()).unwrap().to_owned()
            }
        })
        .collect();
    assert_eq!(found, ["directory/g", "fine/a"].into_iter().map(Into::into).collect());
    let refused: BTreeSet<_> = end.errors.iter().map(|error| error.path.clone()).collect();
    assert_eq!((refused, end.error_count), (traps.iter().map(|name| at(name)).collect(), 6));

    // If such a file is in the root or above it, the whole search is refused, unless it reads no ignore files.
    for root in [at("fifo"), at("device"), at("fifo/b")] {
        assert!(matches!(SearchQuery::below(root).prepare(FileRoot::host()), Err(PrepareSearchError::Root(_))));
    }
    let all = SearchQuery { respect_ignore: false, ..SearchQuery::below(at("fifo")) };
    assert_eq!(names(root.path(), all), set(&["fifo/b"]));
}

/// At each match the search looks for both ends of the line. The line of this test has eight million matches, so a
/// search that cannot be cancelled would take hours.
#[test]
fn a_search_in_a_long_line_with_many_matches_can_be_cancelled() {
    let root = tree(&[("long", &"a".repeat(8 << 20)), ("short", "a")]);
    let cancel = Cancel::new();
    let multi_line_pattern = Pattern { multi_line: true, ..pattern("a\\n?") };
    let search = SearchQuery { threads: Some(2), ..search(&root, multi_line_pattern) };
    let end = search.prepare(FileRoot::host()).unwrap().run(&cancel, &|_| {
        cancel.cancel();
        ControlFlow::Continue(())
    });
    assert_eq!(end.completion, SearchCompletion::Cancelled);
}

/// If the pattern may span lines, the library `grep-searcher` reports all matching lines of this file at once.
#[test]
fn many_matches_over_many_lines_are_not_all_held_in_memory() {
    const LINES: usize = MAX_SEARCHED_BYTES / 8;
    let root = tree(&[("many", &"aaaaaaa\n".repeat(LINES))]);
    let before = peak_resident_bytes();
    let reported = Mutex::new((0, 0));
    let multi_line_pattern = Pattern { multi_line: true, ..pattern("a\\n?") };
    let end = search(&root, multi_line_pattern).prepare(FileRoot::host()).unwrap().run(&Cancel::new(), &|found| {
        let SearchHit::Lines { lines, .. } = found else { panic!("the search asks for lines") };
        let mut reported = reported.lock().unwrap();
        reported.0 += lines.len();
        reported.1 += lines.iter().map(|line| line.matches.len()).sum::<usize>();
        ControlFlow::Continue(())
    });
    assert_eq!((end.errors, reported.into_inner().unwrap()), (vec![], (LINES, LINES * 7)));
    let grown = peak_resident_bytes() - before;
    assert!(grown < 6 * MAX_SEARCHED_BYTES, "{grown} bytes");
}

fn peak_resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

#[test]
fn a_line_that_is_too_long_is_reported_as_an_error_of_its_file() {
    let long = format!("needle first\n{}needle\nneedle last\n", "a".repeat(MAX_SEARCHED_BYTES + 1));
    let root = tree(&[("long", &long), ("short", "needle\n")]);
    let (found, end) = run(search(&root, pattern("needle")));
    let errors: Vec<_> = end.errors.iter().map(|error| (error.path.clone(), error.text.as_str())).collect();
    let expected = "the file has a line of more than 8 MiB, so it was searched only up to that line";
    assert_eq!(errors, [(root.path().join("long"), expected)]);
    let numbers = |name: &str| -> Vec<u64> {
        let lines_in = |hit: &SearchHit| match hit {
            SearchHit::Lines { path, lines } if path.ends_with(name) => lines.clone(),
            _ => Vec::new(),
        };
        found.iter().flat_map(lines_in).map(|line| line.number).collect()
    };
    assert_eq!((numbers("short"), numbers("long")), (vec![1], vec![1]));
    let longest = format!("{}needle\n", "a".repeat(MAX_SEARCHED_BYTES - "needle".len()));
    let root = tree(&[("longest", &longest)]);
    assert_eq!(lines(search(&root, pattern("needle"))).len(), 1);
}

#[test]
fn a_file_that_is_too_large_to_be_searched_as_a_whole_is_an_error() {
    let large = "needle\n".repeat(MAX_SEARCHED_BYTES / 7 + 1);
    let root = tree(&[("large", &large), ("small", "needle\nthread\n")]);
    let (found, end) = run(search(&root, Pattern { multi_line: true, ..pattern("needle\nthread") }));
    assert_eq!(found.len(), 1);
    let errors: Vec<_> = end.errors.iter().map(|error| (error.path.clone(), error.text.as_str())).collect();
    let expected = "the file has more than 8 MiB, so it is not searched for matches that span lines";
    assert_eq!(errors, [(root.path().join("large"), expected)]);
}
