//! Checks that must succeed for any bytes that arrive as a message of a relay. Used by the fuzz target and by the test
//! that replays the corpus.

use relay::{Frame, FrameBody, FrameError};

/// Panics if one of the checks fails for these bytes.
pub(crate) fn check(input: &[u8]) {
    match Frame::decode(input.to_vec().into()) {
        Ok(frame) => {
            assert!(!frame.stream_id.trim().is_empty());
            if let FrameBody::Data { record: payload, .. } | FrameBody::Handshake(payload) = &frame.body {
                assert!(!payload.is_empty());
            }
            assert_eq!(Frame::decode(frame.encode().into()), Ok(frame));
        }
        // The text of an error is logged, so it does not grow with the input.
        Err(error @ (FrameError::Undecodable | FrameError::Invalid { .. })) => assert!(error.to_string().len() < 200),
    }
}
