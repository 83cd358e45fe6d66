//! Size limits of `capabilityRoots/discoverV1`, which returns the files of skills and plugins below directories that
//! the client names (roots): limits for one file, for all files of one root, and for the answer.

use testkit::{TestServer, Value, json};

use crate::{DISCOVER, Tree};

/// Largest size of one file.
const FILE_LIMIT_BYTES: usize = 1 << 20;

fn paths_of_skills(root: &Value) -> Vec<&str> {
    root["skills"].as_array().unwrap().iter().map(|skill| skill["instructions"]["path"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_file_over_its_limit_is_left_out_with_a_warning() {
    let tree = Tree::new();
    tree.write("r/fits/SKILL.md", vec![b'x'; FILE_LIMIT_BYTES]);
    tree.write("r/large/SKILL.md", vec![b'x'; FILE_LIMIT_BYTES + 1]);
    let found = tree.discover("r").await;
    assert_eq!(paths_of_skills(&found), [tree.uri("r/fits/SKILL.md")]);
    let large = format!("capability file {} exceeds the 1048576-byte limit", tree.uri("r/large/SKILL.md"));
    assert_eq!(found["warnings"], json!([large]));
}

#[tokio::test]
async fn a_file_that_exceeds_the_total_size_of_its_root_is_left_out_and_smaller_files_may_still_fit() {
    let tree = Tree::new();
    // The manifest is in the answer twice, but counts once for the limit of 16 MiB.
    tree.write("r/.codex-plugin/plugin.json", vec![b' '; FILE_LIMIT_BYTES]);
    for number in 0..14 {
        tree.write(&format!("r/{number:02}/SKILL.md"), vec![b'x'; FILE_LIMIT_BYTES]);
    }
    tree.write("r/14/SKILL.md", vec![b'x'; FILE_LIMIT_BYTES - 4]);
    // There is room for four more bytes, and a file that is not UTF-8 takes none of them.
    tree.write("r/15/SKILL.md", "12345");
    tree.write("r/16/SKILL.md", b"\xff\xff\xff\xff");
    tree.write("r/17/SKILL.md", "1234");
    tree.write("r/18/SKILL.md", "1");
    tree.write("r/19/SKILL.md", "");
    let found = tree.discover("r").await;
    let expected: Vec<_> =
        (0..15).chain([17, 19]).map(|number| tree.uri(&format!("r/{number:02}/SKILL.md"))).collect();
    assert_eq!(paths_of_skills(&found), expected);
    let too_large = "capability root bundle exceeds the 16777216-byte limit";
    let not_text = format!(
        "capability file {} is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0",
        tree.uri("r/16/SKILL.md")
    );
    assert_eq!(found["warnings"], json!([too_large, not_text, too_large]));
}

#[tokio::test]
async fn files_that_do_not_fit_the_answer_are_left_out_with_a_warning() {
    let tree = Tree::new();
    for number in 0..4 {
        tree.write(&format!("r/{number}/SKILL.md"), vec![b'x'; 25_000]);
    }
    let server = TestServer::with_args(&["--max-message-bytes", "65536"]).await;
    let roots = json!({"roots": [{"id": "r", "path": tree.uri("r")}]});
    let found = server.client().await.call(DISCOVER, roots).await["roots"][0].clone();
    let left_out = |number: usize| {
        let uri = tree.uri(&format!("r/{number}/SKILL.md"));
        format!(
            "capability file {uri} does not fit the answer of at most 65536 bytes (--max-message-bytes); \
             ask for fewer roots at once"
        )
    };
    assert_eq!(paths_of_skills(&found), [tree.uri("r/0/SKILL.md"), tree.uri("r/1/SKILL.md")]);
    assert_eq!(found["warnings"], json!([left_out(2), left_out(3)]));
}

/// Not only the contents of files count for the limit of an answer: ids, paths, repeated manifests and warnings count
/// too. So the answer is never too large to be sent.
#[tokio::test]
async fn an_answer_at_its_size_limit_can_be_sent() {
    let tree = Tree::new();
    let long = "n".repeat(200);
    for number in 0..300 {
        tree.write(&format!("r/{long}{number}/SKILL.md"), b"\xff");
        tree.write(&format!("s/{long}{number}/SKILL.md"), b"\xff");
    }
    tree.write("s/.codex-plugin/plugin.json", vec![b'"'; 8_000]);
    tree.write("s/.mcp.json", vec![b'\n'; 12_000]);
    let server = TestServer::with_args(&["--max-message-bytes", "65536"]).await;
    let id = "\u{1}".repeat(1000);
    let roots = ["r", "s"].map(|root| json!({"id": id, "path": tree.uri(root)}));
    let result = server.client().await.call(DISCOVER, json!({"roots": roots})).await;
    let warnings_left_out = "further warnings do not fit the answer of at most 65536 bytes (--max-message-bytes); \
               ask for fewer roots at once";
    for root in result["roots"].as_array().unwrap() {
        let warnings = root["warnings"].as_array().unwrap();
        assert_eq!((warnings.last(), &root["error"]), (Some(&json!(warnings_left_out)), &json!(null)));
        assert!(warnings.len() < 300, "{}", warnings.len());
    }
}
