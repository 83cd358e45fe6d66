//! The limit for the size of a message, in both directions.

use testkit::{Client, TestServer, json};
use transport::{ConnectOptions, MessageLimits};

const LIMIT: usize = 64 << 10;

async fn server() -> TestServer {
    TestServer::with_args(&["--max-message-bytes", "64KiB"]).await
}

#[tokio::test]
async fn a_message_of_exactly_the_limit_is_accepted_and_one_byte_more_is_not() {
    let server = server().await;
    let mut client = server.client().await;
    let padded = |size: usize| {
        let bare = r#"{"id":100,"method":"environment/status","x":""}"#;
        bare.replace("\"\"", &format!("\"{}\"", "y".repeat(size - bare.len())))
    };
    client.send_text(&padded(LIMIT)).await;
    assert_eq!(client.next().await, json!({"id": 100, "result": {"status": "ready"}}));
    client.send_text(&padded(LIMIT + 1)).await;
    let answer = client.next().await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(100), &json!(-32600)), "{answer}");
    assert_eq!(answer["error"]["data"], json!({"kind": "messageTooLarge"}));
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.ends_with("exceeds maximum length of 65536 bytes"), "{message}");
    // If the beginning of the message has no id, the error belongs to no request.
    client.send_text(&format!(r#"{{"x":"{}","id":5}}"#, "y".repeat(LIMIT))).await;
    assert_eq!(client.next().await["id"], -1);
    assert_eq!(client.run("p", &["true"]).await.exit_code, 0);
}

#[tokio::test]
async fn an_answer_over_the_limit_becomes_an_error() {
    let server = server().await;
    let mut client = server.client().await;
    let long = "x".repeat(200);
    let mut argv = vec!["true"];
    argv.extend([long.as_str(); 31]);
    for number in 0..12 {
        client.run(&number.to_string(), &argv).await;
    }
    let error = client.call_error("process/list", json!({})).await;
    assert_eq!(error["code"], -32600);
    let message = error["message"].as_str().unwrap();
    assert!(message.ends_with("exceeds the limit of 65536 bytes (--max-message-bytes)"), "{message}");
}

#[tokio::test]
async fn a_read_returns_no_more_than_fits_into_a_message() {
    let server = server().await;
    let mut client = server.client().await;
    client.run("p", &["head", "-c", "200000", "/dev/zero"]).await;
    let (mut after, mut bytes, mut pages) = (0, 0, 0);
    while bytes < 200_000 {
        let page = client.call("process/read", json!({"processId": "p", "afterSeq": after})).await;
        for chunk in page["chunks"].as_array().unwrap() {
            bytes += testkit::unbase64(&chunk["chunk"]).len();
        }
        after = page["nextSeq"].as_u64().unwrap() - 1;
        pages += 1;
    }
    assert_eq!(bytes, 200_000);
    assert!(pages >= 4, "{pages} pages");
}

#[tokio::test]
async fn output_is_divided_so_that_every_message_fits() {
    let server = server().await;
    let limits = MessageLimits { message_bytes: LIMIT };
    let mut client =
        Client::connect_with(server.url(), ConnectOptions { limits, ..Default::default() }).await.unwrap();
    client.handshake(None).await;
    let outcome = client.run("p", &["head", "-c", "3000000", "/dev/zero"]).await;
    assert_eq!(outcome.stdout.len(), 3_000_000);
    let page = client.call("process/read", json!({"processId": "p", "maxBytes": 1})).await;
    assert_eq!(page["chunks"].as_array().unwrap().len(), 1, "one chunk fits into the answer to a read");
}
