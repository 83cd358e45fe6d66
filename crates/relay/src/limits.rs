//! Limits of frames, records and handshakes. Both ends of a stream must agree on most of them, so they are fixed.

use std::time::Duration;

/// Version of the frames. A frame with another version is refused.
pub const RELAY_VERSION: u32 = 1;

/// Longest frame, and so the longest message on a socket to a relay.
pub const MAX_FRAME_BYTES: usize = 256 << 10;

/// Longest id of a stream. The published protocol has no limit; an id is kept for each stream, so ours has one.
pub const MAX_STREAM_ID_BYTES: usize = 256;

/// Bytes of the tag at the end of every encrypted text.
pub const TAG_BYTES: usize = 16;

/// Longest plaintext of a record.
pub const MAX_RECORD_BYTES: usize = 60 << 10;

/// Longest Noise message. A longer record or handshake message is refused.
pub const MAX_NOISE_BYTES: usize = 65_535;

/// Longest authorization that a harness may send in its handshake.
pub const MAX_AUTHORIZATION_BYTES: usize = 4096;

/// Greatest distance between the record that is expected next and a record that is kept for later.
pub const MAX_REORDER_DISTANCE: u32 = 64;

/// Bytes of ciphertext that are kept for later while an earlier record is missing.
pub const MAX_REORDER_BYTES: usize = 1 << 20;

/// A peer that acknowledges may send this many records beyond the last one that the application has read. So a stream
/// keeps at most this many records of [`MAX_RECORD_BYTES`] in each direction.
pub const CREDIT_RECORDS: u64 = MAX_REORDER_DISTANCE as u64;

/// Bytes that are kept for an application that does not read, from a peer that does not acknowledge and so knows nothing
/// of credit. If there are more, the stream fails.
pub const MAX_WAITING_BYTES: usize = 16 << 20;

/// A stream fails if nothing is heard from the peer for this time, although the peer was asked. It is longer than an
/// end needs to notice that its socket is dead, and to replace it.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// A stream fails if records are on their way for this time and no acknowledgement moves forward.
pub const PROGRESS_LIMIT: Duration = Duration::from_secs(60);

/// A stream fails if it has been without a socket, at either end, for this time. The session above the stream lives on, and
/// another stream can resume it, so nothing is gained by waiting longer.
pub const RESUME_LIMIT: Duration = Duration::from_secs(20);

/// The reason of a reset by which a relay says that the socket of the peer was lost. If both ends acknowledge, the
/// stream waits for the peer to resume it. Otherwise it ends, as after every other reset.
pub const PEER_LOST: &str = "peer_lost";
