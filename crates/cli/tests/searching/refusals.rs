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
