//! The prologue of the handshake: it binds a stream to its environment, registration and id. A relay that mixes up
//! streams or environments makes the handshake fail.

/// What a stream is bound to. Both ends must have the same values, byte for byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamBinding<'a> {
    /// The environment that the harness asked for.
    pub environment_id: &'a str,
    /// The registration of the executor, as the registry named it.
    pub registration_id: &'a str,
    /// The stream, as the frames name it.
    pub stream_id: &'a str,
}

impl StreamBinding<'_> {
    /// The bytes that both ends hash before the first message: four texts, each after its length.
    pub(crate) fn prologue(&self) -> Vec<u8> {
        let parts = ["codex-exec-server-relay-noise/v1", self.environment_id, self.registration_id, self.stream_id];
        let mut bytes = Vec::new();
        for part in parts {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prologue_is_four_texts_with_their_lengths() {
        let binding =
            StreamBinding { environment_id: "env-1", registration_id: "registration-1", stream_id: "stream-1" };
        let mut expected = b"\0\0\0\0\0\0\0\x20codex-exec-server-relay-noise/v1".to_vec();
        expected
            .extend_from_slice(b"\0\0\0\0\0\0\0\x05env-1\0\0\0\0\0\0\0\x0eregistration-1\0\0\0\0\0\0\0\x08stream-1");
        assert_eq!(binding.prologue(), expected);
    }

    #[test]
    fn no_two_bindings_have_the_same_prologue() {
        let prologue = |environment_id, registration_id, stream_id| {
            StreamBinding { environment_id, registration_id, stream_id }.prologue()
        };
        assert_ne!(prologue("ab", "c", "d"), prologue("a", "bc", "d"));
        assert_ne!(prologue("", "ab", "c"), prologue("a", "b", "c"));
    }
}
