//! How much input one write may carry. A write that is larger than what a connection carries before it breaks never arrives, however
//! often it is repeated. So after a loss writes are small, and grow with what has arrived since.

/// The size of writes over the connections of one client. Blocks of files keep to it too; each has its place in the file, so that they
/// can always be divided.
#[derive(Debug, Default)]
pub struct WriteSize {
    /// Bytes that the server has taken since the last loss, or since the beginning.
    taken: u64,
    was_lost: bool,
    /// Half of the smallest write that the server has refused because its message was too large.
    most: Option<usize>,
}

impl WriteSize {
    /// Every write may have this many bytes: a message that carries them is about as large as a handshake, and without a handshake there
    /// is no connection at all.
    pub const LEAST_BYTES: usize = 1024;
    /// Larger writes are hardly faster, and hold up the messages behind them.
    pub const MOST_BYTES: usize = 256 * 1024;
    /// However much input waits on a server, it takes a write of this size for a process that has read all of its earlier input.
    pub const FAIR_BYTES: usize = 64 * 1024;

    /// How many bytes the next write may have. `can_be_divided`: the server can say whether it has taken a write, so that one that has not
    /// arrived can be divided. Where it cannot, a write that was sent must be repeated as it was. It is then at most half of what the
    /// connection has carried already, so that the next connection can be expected to carry it too.
    pub fn bytes(&self, can_be_divided: bool) -> usize {
        let most = self.most.unwrap_or(usize::MAX);
        if can_be_divided && !self.was_lost {
            return most;
        }
        let half = usize::try_from(self.taken / 2).unwrap_or(usize::MAX);
        half.clamp(Self::LEAST_BYTES, Self::MOST_BYTES).min(most)
    }

    /// The server has taken a write.
    pub fn handle_taken(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add(bytes as u64);
    }

    /// The server has refused a write because its message was too large. False: a smaller write is no use, because this one was as small
    /// as writes get.
    #[must_use]
    pub fn handle_too_large(&mut self, bytes: usize) -> bool {
        let half = (bytes / 2).max(Self::LEAST_BYTES);
        self.most = Some(self.most.map_or(half, |most| most.min(half)));
        bytes > Self::LEAST_BYTES
    }

    /// A connection was lost before a write was answered.
    pub fn handle_lost(&mut self) {
        self.taken = 0;
        self.was_lost = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_whole_until_one_is_lost() {
        let mut size = WriteSize::default();
        assert_eq!(size.bytes(true), usize::MAX);
        size.handle_lost();
        assert_eq!(size.bytes(true), WriteSize::LEAST_BYTES);
    }

    #[test]
    fn writes_grow_with_what_has_arrived() {
        let mut size = WriteSize::default();
        let mut grown = Vec::new();
        while size.bytes(false) < WriteSize::MOST_BYTES {
            grown.push(size.bytes(false));
            size.handle_taken(size.bytes(false));
        }
        assert_eq!(grown[..6], [1024, 1024, 1024, 1536, 2304, 3456]);
        assert!(grown.len() < 20, "{}", grown.len());
        size.handle_lost();
        assert_eq!(size.bytes(false), WriteSize::LEAST_BYTES);
    }

    #[test]
    fn writes_are_halved_until_the_server_takes_their_messages() {
        let mut size = WriteSize::default();
        assert!(size.handle_too_large(300_000));
        assert_eq!(size.bytes(true), 150_000);
        assert!(size.handle_too_large(150_000));
        size.handle_taken(1 << 30);
        assert_eq!((size.bytes(true), size.bytes(false)), (75_000, 75_000), "what was taken does not lift the limit");
        size.handle_lost();
        assert_eq!(size.bytes(true), WriteSize::LEAST_BYTES);
        assert!(size.handle_too_large(1025) && !size.handle_too_large(1024));
        assert_eq!(size.bytes(true), WriteSize::LEAST_BYTES);
    }

    /// A link that cuts every connection after the same number of bytes brings each write over in the end.
    #[test]
    fn every_connection_brings_the_work_further() {
        const HANDSHAKE: usize = 2500;
        for can_be_divided in [true, false] {
            for capacity in [5_000, 8_000, 20_000, 80_000] {
                let mut size = WriteSize::default();
                let (mut left, mut connections, mut room) = (1 << 20, 0, capacity);
                // What must be repeated as it was.
                let mut pending: Option<usize> = None;
                while left > 0 {
                    let bytes = pending.unwrap_or_else(|| size.bytes(can_be_divided).min(left));
                    let wire = bytes * 4 / 3 + 120;
                    if wire <= room {
                        size.handle_taken(bytes);
                        (left, room, pending) = (left - bytes, room - wire, None);
                    } else {
                        size.handle_lost();
                        pending = Some(bytes).filter(|_| !can_be_divided);
                        (room, connections) = (capacity - HANDSHAKE, connections + 1);
                    }
                    assert!(connections < 2000, "{capacity} bytes per connection, {left} bytes left");
                }
            }
        }
    }
}
