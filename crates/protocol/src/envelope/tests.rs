//! The envelope as a peer sees it: the kinds of messages, the limits, and that no input makes the decoder panic.

use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;

use super::*;
use crate::{RequestId, WireError};

fn refusal(text: &str) -> String {
    decode(text.as_bytes()).expect_err("must be refused").to_string()
}

#[test]
fn the_four_kinds_of_messages_are_distinguished() {
    let with_trace = br#"{"id":7,"method":"m","params":{"a":1},"trace":{"traceparent":"t"}}"#;
    let Incoming::Request(request) = decode(with_trace).unwrap() else { panic!("expected a request") };
    assert_eq!(
        (request.id, &*request.method, request.params.unwrap().get()),
        (RequestId::Integer(7), "m", r#"{"a":1}"#)
    );
    assert!(
        matches!(decode(br#"{"method":"initialized"}"#).unwrap(), Incoming::Notification(n) if n.method == "initialized" && n.params.is_none())
    );
    assert!(
        matches!(decode(br#"{"id":"x","result":null}"#).unwrap(), Incoming::Response(r) if r.id == RequestId::Text("x".into()) && r.result.get() == "null")
    );
    assert!(
        matches!(decode(br#"{"error":{"code":-1,"message":"m"},"id":3}"#).unwrap(), Incoming::Error { error, .. } if error.code == -1)
    );
    // An error counts, also beside a result.
    let both = decode(br#"{"result":{},"error":{"code":-1,"message":"m"},"id":3}"#).unwrap();
    assert!(matches!(both, Incoming::Error { error, .. } if error.code == -1));
    assert!(matches!(decode(br#"{"result":{},"error":null,"id":3}"#).unwrap(), Incoming::Response(_)));
}

#[test]
fn ids_are_strings_or_64_bit_integers() {
    for id in ["null", "1.5", "true", "9223372036854775808", "[]", "{}", "1e3"] {
        let expected = "data did not match any variant of untagged enum RequestId";
        assert_eq!(refusal(&format!(r#"{{"id":{id},"method":"m"}}"#)), expected);
    }
    for id in ["-9223372036854775808", "9223372036854775807", "\"\"", "\"ünï\""] {
        let text = format!(r#"{{"id":{id},"method":"m"}}"#);
        let Incoming::Request(request) = decode(text.as_bytes()).unwrap() else { panic!("expected a request") };
        assert_eq!(serde_json::to_string(&request.id).unwrap(), id);
    }
}

#[test]
fn malformed_messages_are_refused_with_the_published_texts() {
    assert_eq!(refusal("[]"), "expected a JSON-RPC object");
    assert_eq!(refusal("7"), "expected a JSON-RPC object");
    assert_eq!(refusal("not-json"), "expected ident at line 1 column 2");
    assert_eq!(refusal(r#"{"id":1}"#), "missing field `error`");
    assert_eq!(refusal(r#"{"result":1}"#), "missing field `id`");
    assert!(refusal("{\"id\":1,").contains("EOF"));
    assert!(refusal("").contains("EOF"));
    assert!(decode(b"{\"method\":\"\xff\"}").unwrap_err().to_string().starts_with("invalid UTF-8"));
    assert_eq!(refusal(r#"{"method":7}"#), "invalid type: number, expected a string");
}

#[test]
fn duplicate_keys_are_refused_at_any_depth_and_in_any_spelling() {
    assert_eq!(refusal(r#"{"method":"a","method":"b"}"#), "duplicate JSON object key `method`");
    assert_eq!(refusal(r#"{"id":1,"method":"m","params":{"x":[{"k":1,"k":2}]}}"#), "duplicate JSON object key `k`");
    assert_eq!(refusal(r#"{"id":1,"method":"m","params":{"k":1,"\u006b":2}}"#), "duplicate JSON object key `k`");
    let many: String = (0..40).map(|n| format!("\"k{n}\":{n},")).collect();
    assert_eq!(refusal(&format!(r#"{{"method":"m","params":{{{many}"k3":0}}}}"#)), "duplicate JSON object key `k3`");
    assert!(decode(format!(r#"{{"method":"m","params":{{{many}"z":{{"k3":0}}}}}}"#).as_bytes()).is_ok());
}

#[test]
fn values_are_counted_and_keys_are_not() {
    let zeros = |n: usize| format!(r#"{{"method":"m","params":[{}]}}"#, vec!["0"; n].join(","));
    // The outer object, the method and the array count as three values.
    assert!(decode(zeros(MAX_VALUES - 3).as_bytes()).is_ok());
    assert_eq!(refusal(&zeros(MAX_VALUES - 2)), "JSON-RPC message exceeds the limit of 262144 JSON values");
    assert_eq!(refusal(&zeros(2_100_000)), "JSON-RPC message exceeds the limit of 262144 JSON values");
    // `serde_json` marks raw values with this key internally. In a message it is a key like any other.
    let wrapped = format!(
        r#"{{"method":"m","params":{{"$serde_json::private::RawValue":[{}]}}}}"#,
        vec!["0"; MAX_VALUES].join(",")
    );
    assert_eq!(refusal(&wrapped), "JSON-RPC message exceeds the limit of 262144 JSON values");
    let long = format!(r#"{{"method":"m","params":"{}"}}"#, "x".repeat(2 * MAX_VALUES));
    assert!(decode(long.as_bytes()).is_ok());
}

#[test]
fn depth_is_limited_without_recursion() {
    let nested = |n: usize| format!(r#"{{"method":"m","params":{}{}}}"#, "[".repeat(n), "]".repeat(n));
    assert!(decode(nested(MAX_DEPTH - 1).as_bytes()).is_ok());
    assert_eq!(refusal(&nested(MAX_DEPTH)), "JSON-RPC message exceeds the limit of 128 nested containers");
    refusal(&nested(1_000_000));
}

#[test]
fn numbers_of_any_precision_survive_a_round_trip() {
    let text = r#"{"method":"m","params":[1.5,1e100,18446744073709551616,1e400]}"#;
    let Incoming::Notification(message) = decode(text.as_bytes()).unwrap() else { panic!("expected a notification") };
    let again = encode_notification(&message.method, &message.params);
    assert_eq!(std::str::from_utf8(&again).unwrap(), text);
}

#[test]
fn answers_have_the_published_member_order() {
    let error = WireError::invalid_request("unknown process id p");
    assert_eq!(
        std::str::from_utf8(&encode_error(&RequestId::Integer(7), &error)).unwrap(),
        r#"{"error":{"code":-32600,"message":"unknown process id p"},"id":7}"#
    );
    assert_eq!(
        std::str::from_utf8(&encode_response(&RequestId::Text("a".into()), &serde_json::json!({"running": true})))
            .unwrap(),
        r#"{"id":"a","result":{"running":true}}"#
    );
}

#[test]
fn the_id_of_a_cut_message_is_found_if_it_is_the_first_member() {
    assert_eq!(sniff_id(br#"{"id":12,"method":"pro"#), Some(RequestId::Integer(12)));
    assert_eq!(sniff_id(br#" { "id" : "a\"b" , "me"#), Some(RequestId::Text("a\"b".into())));
    for cut in [&br#"{"id":12"#[..], br#"{"method":"x","id":1"#, br#"{"id":null,"#, b"", b"[[[["] {
        assert_eq!(sniff_id(cut), None);
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(".{0,6}", inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn requests_and_responses_round_trip(id in prop_oneof![any::<i64>().prop_map(RequestId::Integer), ".{0,12}".prop_map(|text| RequestId::Text(text.into()))], method in ".{0,12}", params in any_json()) {
        let text = encode_request(&id, &method, &params);
        let Incoming::Request(request) = decode(&text).unwrap() else { panic!("expected a request") };
        prop_assert_eq!(&request.id, &id);
        prop_assert_eq!(&*request.method, method.as_str());
        prop_assert_eq!(serde_json::from_str::<Value>(request.params.map_or("null", RawValue::get)).unwrap(), params);
        let text = encode_response(&id, &parse_json(&text));
        let Incoming::Response(response) = decode(&text).unwrap() else { panic!("expected a response") };
        prop_assert_eq!(response.id, id);
    }

    #[test]
    fn every_message_that_decodes_is_valid_json(text in r#"[\{\}\[\],:"a-c0-9 \\tru.e-]{0,24}"#) {
        if decode(text.as_bytes()).is_ok() {
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
        }
    }

    #[test]
    fn no_input_makes_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes);
        let _ = sniff_id(&bytes);
        let _ = sniff_method(&bytes);
        let _ = crate::fs::classify_refused_message(&bytes);
    }
}

fn parse_json(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap()
}

#[test]
fn base64_messages_equal_those_that_serde_writes() {
    use crate::fs::{ReadBlockResult, WriteBlockParams};
    let (id, bytes) = (RequestId::Text("a\"b".into()), vec![0u8, 255, 7, 8]);
    let result = ReadBlockResult { chunk: crate::Base64Bytes(bytes.clone()), eof: false };
    let ours = encode_base64_response(&id, r#"{"chunk":""#, &bytes, r#"","eof":false}"#);
    assert_eq!(ours, encode_response(&id, &result));
    let params = WriteBlockParams { handle_id: "h".to_owned(), offset: 9, chunk: crate::Base64Bytes(bytes.clone()) };
    let ours = crate::fs::encode_write_block(&id, "h", 9, &bytes);
    assert_eq!(ours, encode_request(&id, "fs/writeBlock", &params));
}
