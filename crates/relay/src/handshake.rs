//! The Noise handshake at the start of a stream. Each step is a type, so the steps cannot be called in the wrong order.
//!
//! The harness sends the first message, which holds its static key and the authorization that the registry gave it.
//! The executor reads it ([`ExecutorHandshake::read`]), asks the registry whether this key may use it, and only then
//! answers ([`ExecutorHandshake::accept`]). Before that the executor has no keys with which it could read anything.

use std::fmt;

use clatter::HybridHandshakeParams;
use clatter::bytearray::{ByteArray as _, HeapArray};
use clatter::crypto::rng::DefaultRng;
use clatter::handshakepattern::noise_hybrid_ik;
use clatter::traits::{Handshaker as _, Rng};

use crate::acknowledgement::AcknowledgementKey;
use crate::cipher_suite::{AesGcm, MlKem768, Sha256, X25519};
use crate::limits::{MAX_AUTHORIZATION_BYTES, MAX_NOISE_BYTES};
use crate::prologue::StreamBinding;
use crate::public_key::{RelayIdentity, RelayPublicKey};
use crate::record::{RecordOpener, RecordSealer};

type Noise<R> = clatter::HybridHandshakeCore<X25519, MlKem768, MlKem768, AesGcm, Sha256, R>;

/// Why a handshake has failed. It says nothing about keys, because it is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeFailure {
    /// The system has no randomness, or a key cannot be used.
    #[error("the keys of this end cannot be used")]
    Keys,
    /// A public key of the peer is not a key.
    #[error("the public key of the peer cannot be used")]
    PeerKey,
    /// The message is too short, too long, altered, for another key or for another stream.
    #[error("the handshake message of the peer is altered, or is for another key or another stream")]
    Message,
    /// The authorization in the first message is longer than [`MAX_AUTHORIZATION_BYTES`], or is not UTF-8.
    #[error("the authorization of the harness is not a text of at most {MAX_AUTHORIZATION_BYTES} bytes")]
    Authorization,
    /// The second message has a payload, which the protocol does not allow.
    #[error("the handshake message of the executor has a payload")]
    Payload,
}

/// Both directions of an encrypted stream.
#[derive(Debug)]
pub struct Channel {
    /// Encrypts what this end sends.
    pub sealer: RecordSealer,
    /// Decrypts what the peer sends.
    pub opener: RecordOpener,
    /// Makes the tags of the acknowledgements that this end sends.
    pub(crate) sent_acks: AcknowledgementKey,
    /// Checks the tags of the acknowledgements that the peer sends.
    pub(crate) peer_acks: AcknowledgementKey,
}

/// The harness has sent its message and waits for that of the executor.
pub struct HarnessHandshake<R: Rng = DefaultRng>(Noise<R>);

impl HarnessHandshake {
    /// Begins a handshake with the executor that has the key `executor`. Returns the first message.
    pub fn begin(
        identity: &RelayIdentity,
        executor: &RelayPublicKey,
        binding: StreamBinding<'_>,
        authorization: &str,
    ) -> Result<(Self, Vec<u8>), HandshakeFailure> {
        Self::begin_with_randomness(identity, executor, binding, authorization)
    }
}

impl<R: Rng> HarnessHandshake<R> {
    pub(crate) fn begin_with_randomness(
        identity: &RelayIdentity,
        executor: &RelayPublicKey,
        binding: StreamBinding<'_>,
        authorization: &str,
    ) -> Result<(Self, Vec<u8>), HandshakeFailure> {
        if authorization.len() > MAX_AUTHORIZATION_BYTES {
            return Err(HandshakeFailure::Authorization);
        }
        let prologue = binding.prologue();
        let params = HybridHandshakeParams::new(noise_hybrid_ik(), true)
            .with_prologue(&prologue)
            .with_s(identity.x25519.clone())
            .with_s_kem(identity.mlkem768.clone())
            .with_rs(executor.x25519)
            .with_rs_kem(HeapArray::from_slice(&*executor.mlkem768));
        let mut noise = Noise::new(params).map_err(|_| HandshakeFailure::Keys)?;
        let message = write(&mut noise, authorization.as_bytes())?;
        Ok((Self(noise), message))
    }

    /// Ends the handshake with the message of the executor.
    pub fn finish(mut self, message: &[u8]) -> Result<Channel, HandshakeFailure> {
        let payload = read(&mut self.0, message)?;
        if !payload.is_empty() {
            return Err(HandshakeFailure::Payload);
        }
        channel(self.0, true)
    }
}

/// The executor has read the message of the harness and has not answered yet.
pub struct ExecutorHandshake<R: Rng = DefaultRng> {
    noise: Noise<R>,
    harness_key: RelayPublicKey,
    authorization: String,
}

impl ExecutorHandshake {
    /// Reads the first message. It may be a copy of an earlier message, so nothing may happen for the harness before it
    /// has sent a record that can be decrypted.
    pub fn read(
        identity: &RelayIdentity,
        binding: StreamBinding<'_>,
        message: &[u8],
    ) -> Result<Self, HandshakeFailure> {
        Self::read_with_randomness(identity, binding, message)
    }
}

impl<R: Rng> ExecutorHandshake<R> {
    pub(crate) fn read_with_randomness(
        identity: &RelayIdentity,
        binding: StreamBinding<'_>,
        message: &[u8],
    ) -> Result<Self, HandshakeFailure> {
        let prologue = binding.prologue();
        let params = HybridHandshakeParams::new(noise_hybrid_ik(), false)
            .with_prologue(&prologue)
            .with_s(identity.x25519.clone())
            .with_s_kem(identity.mlkem768.clone());
        let mut noise = Noise::<R>::new(params).map_err(|_| HandshakeFailure::Keys)?;
        let authorization = read(&mut noise, message)?;
        if authorization.len() > MAX_AUTHORIZATION_BYTES {
            return Err(HandshakeFailure::Authorization);
        }
        let authorization = String::from_utf8(authorization).map_err(|_| HandshakeFailure::Authorization)?;
        let keys = noise.get_remote_static().ok_or(HandshakeFailure::Message)?;
        let harness_key =
            RelayPublicKey::from_parts(*keys.dh(), keys.kem().as_slice()).ok_or(HandshakeFailure::PeerKey)?;
        Ok(Self { noise, harness_key, authorization })
    }

    /// The key for which the registry has to confirm the authorization. The first record that can be decrypted proves that
    /// the harness holds both of its secrets.
    pub fn harness_key(&self) -> &RelayPublicKey {
        &self.harness_key
    }

    /// What the registry gave to the harness, and has to confirm for this key.
    pub fn authorization(&self) -> &str {
        &self.authorization
    }

    /// Accepts the harness. Returns the message for it, and the channel.
    pub fn accept(mut self) -> Result<(Vec<u8>, Channel), HandshakeFailure> {
        let message = write(&mut self.noise, b"")?;
        Ok((message, channel(self.noise, false)?))
    }
}

fn write<R: Rng>(noise: &mut Noise<R>, payload: &[u8]) -> Result<Vec<u8>, HandshakeFailure> {
    let overhead = noise.get_next_message_overhead().map_err(|_| HandshakeFailure::Keys)?;
    let mut message = vec![0; overhead + payload.len()];
    // Writing uses the public keys of the peer, and nothing else that can be wrong.
    noise.write_message(payload, &mut message).map_err(|_| HandshakeFailure::PeerKey)?;
    Ok(message)
}

fn read<R: Rng>(noise: &mut Noise<R>, message: &[u8]) -> Result<Vec<u8>, HandshakeFailure> {
    // `clatter` panics if a message is longer.
    if message.len() > MAX_NOISE_BYTES {
        return Err(HandshakeFailure::Message);
    }
    let mut payload = vec![0; message.len()];
    let len = noise.read_message(message, &mut payload).map_err(|_| HandshakeFailure::Message)?;
    payload.truncate(len);
    Ok(payload)
}

fn channel<R: Rng>(noise: Noise<R>, is_harness: bool) -> Result<Channel, HandshakeFailure> {
    let keys = noise.finalize().map_err(|_| HandshakeFailure::Keys)?.take();
    let (from_harness, _) = keys.initiator_to_responder.take();
    let (from_executor, _) = keys.responder_to_initiator.take();
    let (sending, receiving) = if is_harness { (from_harness, from_executor) } else { (from_executor, from_harness) };
    Ok(Channel {
        sealer: RecordSealer::new(&sending)?,
        opener: RecordOpener::new(&receiving)?,
        sent_acks: AcknowledgementKey::derive(&sending),
        peer_acks: AcknowledgementKey::derive(&receiving),
    })
}

/// No keys: they must not reach a log.
impl<R: Rng> fmt::Debug for HarnessHandshake<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HarnessHandshake").finish_non_exhaustive()
    }
}

/// Neither keys nor authorization: they must not reach a log.
impl<R: Rng> fmt::Debug for ExecutorHandshake<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutorHandshake").field("harness_key", &self.harness_key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
