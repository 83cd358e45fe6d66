//! Searches that the server refuses.

use testkit::json;

use crate::support::{SearchFixture, uri};

#[tokio::test]
async fn invalid_patterns_and_globs_and_too_many_context_lines_are_refused() {
    let mut fixture = SearchFixture::new(&[("file", b"x\n")]).await;
    for (changes, start) in [
        (json!({"pattern": "a("}), "fs/search: bad pattern: "),
        (json!({"pattern": "x", "globs": ["a{"]}), "fs/search: bad glob `a{`: "),
        (json!({"pattern": "x", "contextLines": 21}), "fs/search: 21 lines of context are more than 20"),
    ] {
        let error = fixture.refusal(changes).await;
        assert_eq!(error["code"], -32602, "{error}");
        assert!(error["message"].as_str().unwrap().starts_with(start), "{error}");
    }
    // The id of the refused searches is free again.
    assert_eq!(fixture.search(json!({"pattern": "x"})).await.paths(), ["file"]);
}

#[tokio::test]
async fn patterns_and_globs_that_would_take_too_much_memory_are_refused() {
    let mut fixture = SearchFixture::new(&[("file", b"x\n")]).await;
    fixture.search(json!({"pattern": "x"})).await;
    let before = testkit::peak_resident_bytes(fixture.server.pid());
    for (changes, message) in [
        (
            json!({"pattern": r"\pL".repeat(10_000)}),
            "the pattern has 30000 bytes, and at most 8192 are allowed; search for a part of it",
        ),
        (
            json!({"globs": vec!["*a?"; 20_000]}),
            "there are 20000 globs, and at most 1000 are allowed; search several times",
        ),
        (
            json!({"globs": vec!["a".repeat(1000); 100]}),
            "the globs have 100000 bytes together, and at most 65536 are allowed; search several times",
        ),
        (
            json!({"globs": [format!("{}a{}", "{".repeat(16_000), "}".repeat(16_000))]}),
            "a glob has more than 1000 opening braces; search several times",
        ),
    ] {
        let error = fixture.refusal(changes).await;
        assert_eq!(error, json!({"code": -32602, "message": format!("fs/search: {message}")}));
    }
    let grown = testkit::peak_resident_bytes(fixture.server.pid()) - before;
    assert!(grown < 32 << 20, "the server uses {grown} more bytes for patterns and globs that were refused");
    // This pattern has the largest allowed length. It is refused because the compiled pattern would be too large.
    let error = fixture.refusal(json!({"pattern": r"\w".repeat(4096)})).await;
    assert!(error["message"].as_str().unwrap().starts_with("fs/search: bad pattern: "), "{error}");
    let found = fixture
        .search(json!({"globs": (0..1000).map(|number| format!("*[a-z]?{number}*")).collect::<Vec<_>>()}))
        .await;
    assert!(found.files.is_empty());
    let grown = testkit::peak_resident_bytes(fixture.server.pid()) - before;
    assert!(grown < 256 << 20, "the server uses {grown} more bytes for the largest patterns and globs");
    assert_eq!(fixture.search(json!({"pattern": "x"})).await.paths(), ["file"]);
}

#[tokio::test]
async fn a_missing_or_relative_path_is_an_error() {
    let mut fixture = SearchFixture::new(&[]).await;
    let missing = fixture.tree.path().join("missing");
    let error = fixture.refusal(json!({"pattern": "x", "path": uri(&missing)})).await;
    assert_eq!((&error["code"], &error["data"]["errno"]), (&json!(-32004), &json!(2)), "{error}");
    let error = fixture.refusal(json!({"pattern": "x", "path": "relative"})).await;
    assert_eq!(error["code"], -32602);
}

#[tokio::test]
async fn search_ids_have_at_most_32_bytes() {
    let mut fixture = SearchFixture::new(&[]).await;
    let error = fixture.refusal(json!({"searchId": "x".repeat(33)})).await;
    assert_eq!(error, json!({"code": -32600, "message": "search ID must not exceed 32 bytes"}));
}

#[tokio::test]
async fn cancelling_an_unknown_search_is_no_error() {
    let mut fixture = SearchFixture::new(&[]).await;
    assert_eq!(fixture.client.call("fs/cancelSearch", json!({"searchId": "unknown"})).await, json!({}));
}
