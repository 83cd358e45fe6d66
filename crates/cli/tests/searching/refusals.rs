//! Searches that cannot begin.

use testkit::json;

use crate::support::{World, uri};

#[tokio::test]
async fn what_is_no_expression_and_no_glob_is_said_to_be_none() {
    let mut world = World::new(&[("file", b"x\n")]).await;
    for (changes, start) in [
        (json!({"pattern": "a("}), "fs/search: bad pattern: "),
        (json!({"pattern": "x", "globs": ["a{"]}), "fs/search: bad glob `a{`: "),
        (json!({"pattern": "x", "contextLines": 21}), "fs/search: 21 lines of context are more than 20"),
    ] {
        let error = world.refusal(changes).await;
        assert_eq!(error["code"], -32602, "{error}");
        assert!(error["message"].as_str().unwrap().starts_with(start), "{error}");
    }
    // None of them has kept the name.
    assert_eq!(world.search(json!({"pattern": "x"})).await.names(), ["file"]);
}

#[tokio::test]
async fn a_question_that_would_fill_the_memory_is_refused_before_it_does() {
    let mut world = World::new(&[("file", b"x\n")]).await;
    world.search(json!({"pattern": "x"})).await;
    let before = testkit::peak_resident_bytes(world.server.pid());
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
        let error = world.refusal(changes).await;
        assert_eq!(error, json!({"code": -32602, "message": format!("fs/search: {message}")}));
    }
    let grown = testkit::peak_resident_bytes(world.server.pid()) - before;
    assert!(grown < 32 << 20, "{grown} bytes for questions that were refused");
    // The largest that are tried are refused in time as well, for what they would compile to.
    let error = world.refusal(json!({"pattern": r"\w".repeat(4096)})).await;
    assert!(error["message"].as_str().unwrap().starts_with("fs/search: bad pattern: "), "{error}");
    let found =
        world.search(json!({"globs": (0..1000).map(|number| format!("*[a-z]?{number}*")).collect::<Vec<_>>()})).await;
    assert!(found.files.is_empty());
    let grown = testkit::peak_resident_bytes(world.server.pid()) - before;
    assert!(grown < 256 << 20, "{grown} bytes for the largest questions");
    assert_eq!(world.search(json!({"pattern": "x"})).await.names(), ["file"]);
}

#[tokio::test]
async fn a_root_that_is_not_there_is_the_answer() {
    let mut world = World::new(&[]).await;
    let missing = world.tree.path().join("missing");
    let error = world.refusal(json!({"pattern": "x", "path": uri(&missing)})).await;
    assert_eq!((&error["code"], &error["data"]["errno"]), (&json!(-32004), &json!(2)), "{error}");
    let error = world.refusal(json!({"pattern": "x", "path": "relative"})).await;
    assert_eq!(error["code"], -32602);
}

#[tokio::test]
async fn ids_are_short() {
    let mut world = World::new(&[]).await;
    let error = world.refusal(json!({"searchId": "x".repeat(33)})).await;
    assert_eq!(error, json!({"code": -32600, "message": "search ID must not exceed 32 bytes"}));
}

#[tokio::test]
async fn to_cancel_what_is_not_there_is_fine() {
    let mut world = World::new(&[]).await;
    assert_eq!(world.client.call("fs/cancelSearch", json!({"searchId": "unknown"})).await, json!({}));
}
