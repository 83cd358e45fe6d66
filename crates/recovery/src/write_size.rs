//! Decides how many bytes one write to the stdin of a process may carry. If every connection breaks before it has
//! carried a large write, the write never arrives, however often it is repeated. So writes are small after a
//! connection was lost, and grow with the number of bytes that have arrived since.

/// The size of writes over the connections of one client. The client uses the same sizes for reads of output and for
/// blocks of files; these can always be asked for or sent again in smaller parts, because each part has an offset.
#[derive(Debug, Default)]
pub struct WriteSize {
    /// Bytes of answered writes and reads since a connection was lost, or since the beginning.
    carried: u64,
    was_lost: bool,
    /// Half of the smallest write that the server has refused because its message was too large, but at least
    /// [`LEAST_BYTES`](Self::LEAST_BYTES).
    server_limit: Option<usize>,
}

impl WriteSize {
    /// A write is never limited to fewer bytes. The message of such a write is about as large as a handshake, and a connection that cannot
    /// carry a handshake is useless anyway.
    pub const LEAST_BYTES: usize = 1024;
    /// Upper bound of writes after a loss, and of writes that must be repeated unchanged. Larger writes are hardly
    /// faster, and delay the messages behind them.
    pub const MOST_BYTES: usize = 256 * 1024;
    /// A server accepts a write of this size for a process that has read all its earlier input, even when the queues of all processes
    /// together are full.
    pub const ALWAYS_ACCEPTED_BYTES: usize = 64 * 1024;

    /// How many bytes the next write may have. `can_resend_smaller` says whether the write, if it does not arrive, can
    /// be sent again in smaller parts. If so, it is limited only after a connection was lost. If not, it must be
    /// repeated unchanged, so it is always limited. The limit is half of the bytes that have arrived since the last
    /// loss, because the next connection will probably carry that many bytes too. It is never outside of
    /// [`LEAST_BYTES`](Self::LEAST_BYTES) to [`MOST_BYTES`](Self::MOST_BYTES). After
    /// [`handle_too_large`](Self::handle_too_large), the limit of the server counts as well.
    pub fn bytes(&self, can_resend_smaller: bool) -> usize {
        let server_limit = self.server_limit.unwrap_or(usize::MAX);
        if can_resend_smaller && !self.was_lost {
            return server_limit;
        }
        let half = usize::try_from(self.carried / 2).unwrap_or(usize::MAX);
        half.clamp(Self::LEAST_BYTES, Self::MOST_BYTES).min(server_limit)
    }

    /// The server has answered a write of this size, or a read with this many bytes.
    pub fn note_carried(&mut self, bytes: usize) {
        self.carried = self.carried.saturating_add(bytes as u64);
    }

    /// The server has refused a write of this size because its message was too large. Returns whether a smaller write
    /// is worth a try: false if this write had at most [`LEAST_BYTES`](Self::LEAST_BYTES).
    #[must_use]
    pub fn handle_too_large(&mut self, bytes: usize) -> bool {
        let half = (bytes / 2).max(Self::LEAST_BYTES);
        self.server_limit = Some(self.server_limit.map_or(half, |limit| limit.min(half)));
        bytes > Self::LEAST_BYTES
    }

    /// A connection was lost before a write or a read was answered.
    pub fn note_connection_lost(&mut self) {
        self.carried = 0;
        self.was_lost = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_that_can_be_resent_smaller_have_no_limit_until_a_connection_is_lost() {
        let mut size = WriteSize::default();
        assert_eq!(size.bytes(true), usize::MAX);
        size.note_connection_lost();
        assert_eq!(size.bytes(true), WriteSize::LEAST_BYTES);
    }

    #[test]
    fn writes_grow_with_the_bytes_that_have_arrived_and_are_small_again_after_a_loss() {
        let mut size = WriteSize::default();
        let mut grown = Vec::new();
        while size.bytes(false) < WriteSize::MOST_BYTES {
            grown.push(size.bytes(false));
            size.note_carried(size.bytes(false));
        }
        assert_eq!(grown[..6], [1024, 1024, 1024, 1536, 2304, 3456]);
        assert!(grown.len() < 20, "{}", grown.len());
        size.note_connection_lost();
        assert_eq!(size.bytes(false), WriteSize::LEAST_BYTES);
    }

    #[test]
    fn writes_are_halved_until_the_server_accepts_them() {
        let mut size = WriteSize::default();
        assert!(size.handle_too_large(300_000));
        assert_eq!(size.bytes(true), 150_000);
        assert!(size.handle_too_large(150_000));
        size.note_carried(1 << 30);
        assert_eq!((size.bytes(true), size.bytes(false)), (75_000, 75_000), "accepted writes do not lift the limit");
        size.note_connection_lost();
        assert_eq!(size.bytes(true), WriteSize::LEAST_BYTES);
        assert!(size.handle_too_large(1025) && !size.handle_too_large(1024));
        assert_eq!(size.bytes(true), WriteSize::LEAST_BYTES);
    }

    /// Every connection breaks after the same number of bytes.
    #[test]
    fn all_input_arrives_over_many_short_connections() {
        const HANDSHAKE_BYTES: usize = 2500;
        for can_resend_smaller in [true, false] {
            for capacity in [5_000, 8_000, 20_000, 80_000] {
                let mut size = WriteSize::default();
                let (mut left, mut connections, mut room) = (1 << 20, 0, capacity);
                // Size of the write that must be repeated unchanged.
                let mut pending: Option<usize> = None;
                while left > 0 {
                    let bytes = pending.unwrap_or_else(|| size.bytes(can_resend_smaller).min(left));
                    let wire = bytes * 4 / 3 + 120;
                    if wire <= room {
                        size.note_carried(bytes);
                        (left, room, pending) = (left - bytes, room - wire, None);
                    } else {
                        size.note_connection_lost();
                        pending = Some(bytes).filter(|_| !can_resend_smaller);
                        (room, connections) = (capacity - HANDSHAKE_BYTES, connections + 1);
                    }
                    assert!(connections < 2000, "{capacity} bytes per connection, {left} bytes left");
                }
            }
        }
    }
}
