//! Replays the committed corpus of the fuzz target `launcher_protocol`, with the checks of that target.

#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/launcher_protocol.rs"]
mod launcher_protocol;

/// The corpus has more inputs than this. If fewer are found, the path of the corpus is wrong.
const MIN_INPUTS: usize = 15;

#[test]
fn every_message_of_the_corpus_passes_the_checks_of_the_fuzz_target() {
    corpus::replay("launcher_protocol", MIN_INPUTS, launcher_protocol::check);
}

/// Otherwise the inputs would test only how malformed messages are refused.
#[test]
fn the_inputs_that_are_meant_to_be_valid_are_valid() {
    let input = |name: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/launcher_protocol/");
        let mut bytes = std::fs::read(format!("{folder}{name}")).unwrap();
        // The kind of the message.
        bytes.remove(0);
        bytes
    };
    assert!(sandbox::EnforcementPlan::decode(&input("plan-all-kinds")).is_ok());
    assert!(sandbox::StartRequest::decode(&input("request")).is_ok());
    let everything = sandbox::StartRequest::decode(&input("request-everything")).unwrap();
    assert!(everything.tag.is_some() && everything.terminal && !everything.limits.is_empty());
    assert!(sandbox::StartReply::decode(&input("started")).is_ok());
    assert!(sandbox::BuildReply::decode(&input("build-ready")).is_ok());
}
