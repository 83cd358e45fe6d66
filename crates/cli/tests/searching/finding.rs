//! The matches that a search finds: lines, positions, selected files and limits.

use testkit::{base64, json};

use crate::support::{SearchFixture, uri};

const SONG: &[u8] = b"one fish\ntwo Fish\nred fish\nblue\nfishy fish\n";

#[tokio::test]
async fn lines_have_their_number_their_offset_and_their_matches() {
    let mut fixture = SearchFixture::new(&[("a/song", SONG), ("other", b"no such thing\n")]).await;
    let found = fixture.search(json!({"pattern": "fi(s)h"})).await;
    assert_eq!(found.paths(), ["a/song"]);
    assert_eq!(
        found.files["a/song"],
        [
            json!({"number": 1, "offset": 0, "text": "one fish", "matches": [{"start": 4, "end": 8}]}),
            json!({"number": 3, "offset": 18, "text": "red fish", "matches": [{"start": 4, "end": 8}]}),
            json!({"number": 5, "offset": 32, "text": "fishy fish",
                "matches": [{"start": 0, "end": 4}, {"start": 6, "end": 10}]}),
        ]
    );
    let expected = json!({"filesSearched": 2, "filesMatched": 1, "matches": 3, "stopped": false, "lastSeq": 1,
        "errors": [], "errorCount": 0});
    assert_eq!(found.result, expected);
}

#[tokio::test]
async fn options_for_case_words_and_fixed_strings_select_the_lines() {
    let mut fixture = SearchFixture::new(&[("song", SONG), ("dots", b"a.c\nabc\n")]).await;
    for (changes, lines) in [
        (json!({"pattern": "FISH", "case": "insensitive"}), vec![1, 2, 3, 5]),
        (json!({"pattern": "fish", "case": "smart"}), vec![1, 2, 3, 5]),
        (json!({"pattern": "Fish", "case": "smart"}), vec![2]),
        (json!({"pattern": "fishy", "word": true}), vec![5]),
        (json!({"pattern": "ish", "word": true}), vec![]),
    ] {
        let found = fixture.search(changes.clone()).await;
        assert_eq!(found.lines("song").iter().map(|line| line.0).collect::<Vec<_>>(), lines, "{changes}");
    }
    let found = fixture.search(json!({"pattern": "a.c", "fixedStrings": true})).await;
    assert_eq!(found.lines("dots"), [(1, "a.c")]);
    assert_eq!(fixture.search(json!({"pattern": "a.c"})).await.lines("dots").len(), 2);
}

#[tokio::test]
async fn context_lines_surround_matches_and_do_not_count_as_matches() {
    let mut fixture = SearchFixture::new(&[("song", SONG)]).await;
    let found = fixture.search(json!({"pattern": "red", "contextLines": 1})).await;
    assert_eq!(found.lines("song"), [(2, "two Fish"), (3, "red fish"), (4, "blue")]);
    let matched: Vec<bool> = found.files["song"].iter().map(|line| line.get("matches").is_some()).collect();
    assert_eq!((matched, &found.result["matches"]), (vec![false, true, false], &json!(1)));
}

#[tokio::test]
async fn a_match_may_have_several_lines() {
    let mut fixture = SearchFixture::new(&[("song", SONG)]).await;
    let found = fixture.search(json!({"pattern": "Fish\\nred", "multiLine": true})).await;
    assert_eq!(found.lines("song"), [(2, "two Fish"), (3, "red fish")]);
    assert_eq!(found.files["song"][1]["matches"], json!([{"start": 0, "end": 3}]));
}

#[tokio::test]
async fn globs_hidden_names_and_ignore_files_select_the_files() {
    let files: [(&str, &[u8]); 6] = [
        (".git/HEAD", b""),
        (".gitignore", b"*.log\n"),
        ("a.rs", b"x\n"),
        ("b.txt", b"x\n"),
        ("c.log", b"x\n"),
        (".hidden", b"x\n"),
    ];
    let mut fixture = SearchFixture::new(&files).await;
    for (changes, names) in [
        (json!({}), vec!["a.rs", "b.txt"]),
        (json!({"respectIgnore": false}), vec!["a.rs", "b.txt", "c.log"]),
        (json!({"hidden": true}), vec![".hidden", "a.rs", "b.txt"]),
        (json!({"globs": ["*.rs"]}), vec!["a.rs"]),
        (json!({"globs": ["!*.rs"]}), vec!["b.txt"]),
        (json!({"globs": ["*", "!b*"], "maxDepth": 1}), vec![".hidden", "a.rs", "c.log"]),
    ] {
        let mut with_pattern = changes.clone();
        with_pattern["pattern"] = "x".into();
        assert_eq!(fixture.search(with_pattern).await.paths(), names, "{changes}");
    }
}

#[tokio::test]
async fn without_a_pattern_files_are_found_by_name() {
    let mut fixture = SearchFixture::new(&[("a/b.rs", b"\0"), ("c.rs", b""), ("d.txt", b"x")]).await;
    let found = fixture.search(json!({"globs": ["*.rs"]})).await;
    assert_eq!(found.paths(), ["a/b.rs", "c.rs"]);
    assert_eq!((&found.result["filesMatched"], &found.result["matches"]), (&json!(2), &json!(0)));
    let found = fixture.search(json!({"maxDepth": 1})).await;
    assert_eq!(found.paths(), ["c.rs", "d.txt"]);
    assert_eq!(fixture.search(json!({"maxMatches": 1})).await.files.len(), 1);
}

#[tokio::test]
async fn a_search_returns_no_more_matches_than_requested() {
    let many: Vec<u8> = b"needle\n".repeat(5000);
    let files: Vec<_> = (0..20).map(|number| format!("file{number}")).collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|name| (name.as_str(), &*many)).collect();
    let mut fixture = SearchFixture::new(&files).await;
    for limit in [1, 2, 999, 5001, 12_345] {
        let found = fixture.search(json!({"pattern": "needle", "maxMatches": limit})).await;
        let lines: usize = found.files.values().map(Vec::len).sum();
        assert_eq!((lines, &found.result["matches"]), (limit, &json!(limit)));
        assert_eq!(found.result["stopped"], true);
    }
    let found = fixture.search(json!({"pattern": "needle", "maxMatchesPerFile": 3})).await;
    assert!(found.files.values().all(|lines| lines.len() == 3));
    assert_eq!((found.files.len(), &found.result["stopped"]), (20, &json!(false)));
}

#[tokio::test]
async fn lines_that_are_not_utf_8_come_as_bytes_too_and_binary_files_are_skipped() {
    let files: [(&str, &[u8]); 2] = [("latin", b"caf\xe9 needle\n"), ("binary", b"\0needle\n")];
    let mut fixture = SearchFixture::new(&files).await;
    let found = fixture.search(json!({"pattern": "needle"})).await;
    assert_eq!(found.paths(), ["latin"]);
    let line = &found.files["latin"][0];
    assert_eq!(line["text"], "caf\u{fffd} needle");
    assert_eq!(line["textBase64"], base64(b"caf\xe9 needle"));
    // `start` and `end` are positions in the bytes of the line in the file, not in `text`.
    assert_eq!(line["matches"], json!([{"start": 5, "end": 11}]));
}

#[tokio::test]
async fn long_lines_are_cut() {
    let line = [b"needle".as_slice(), &b"x".repeat(10_000), b"\n"].concat();
    let mut fixture = SearchFixture::new(&[("long", &line)]).await;
    let found = fixture.search(json!({"pattern": "needle"})).await;
    let line = &found.files["long"][0];
    assert_eq!((line["text"].as_str().unwrap().len(), &line["cut"]), (4096, &json!(true)));
}

#[tokio::test]
async fn one_file_can_be_searched_and_large_files_left_out() {
    let mut fixture = SearchFixture::new(&[("song", SONG), ("big", &b"fish\n".repeat(1000))]).await;
    let file = uri(&fixture.tree.path().join("song"));
    assert_eq!(fixture.search(json!({"path": file, "pattern": "blue"})).await.paths(), ["song"]);
    assert_eq!(fixture.search(json!({"pattern": "fish", "maxFileBytes": 100})).await.paths(), ["song"]);
}

#[tokio::test]
async fn links_are_followed_only_if_requested() {
    let mut fixture = SearchFixture::new(&[("real/file", b"x\n")]).await;
    std::os::unix::fs::symlink("real", fixture.tree.path().join("link")).unwrap();
    assert_eq!(fixture.search(json!({"pattern": "x"})).await.paths(), ["real/file"]);
    let found = fixture.search(json!({"pattern": "x", "followSymlinks": true})).await;
    assert_eq!(found.paths(), ["link/file", "real/file"]);
}
