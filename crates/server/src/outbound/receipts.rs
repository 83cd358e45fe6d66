//! Tracks which events the client of one connection has received, and acknowledges them in the
//! [deliveries](session::Delivery) of the processes. A receipt is the proof that the client has an event: a pong, or
//! on some streams a finished write ([`ProofOfReceipt`]). The rules are in [`session::Receipts`].

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use session::{ConnectionNumber, Receipts};
use transport::ProofOfReceipt;

use crate::process::Process;

/// The events that were sent over one connection and wait for a receipt.
pub(crate) struct ConnectionReceipts {
    connection: ConnectionNumber,
    proof: ProofOfReceipt,
    receipts: Mutex<Receipts<SentProcess>>,
}

/// A process that is compared by its address. This is quicker than comparing ids, and distinguishes two processes
/// that had the same id one after the other.
#[derive(Clone)]
struct SentProcess(Arc<Process>);

impl PartialEq for SentProcess {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SentProcess {}

impl Hash for SentProcess {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl ConnectionReceipts {
    /// `retain_bytes` is the limit of output that each process retains.
    pub(crate) fn new(connection: ConnectionNumber, proof: ProofOfReceipt, retain_bytes: usize) -> Self {
        Self { connection, proof, receipts: Mutex::new(Receipts::new(retain_bytes)) }
    }

    /// Events up to the sequence number `through` were sent. Returns whether a ping should follow.
    pub(crate) fn sent(&self, process: &Arc<Process>, through: u64, output_bytes: usize) -> bool {
        let needs_receipt = self.receipts.lock().sent(SentProcess(Arc::clone(process)), through, output_bytes);
        needs_receipt && self.proof == ProofOfReceipt::Pong
    }

    /// An answer of `bytes` bytes was sent. Returns whether a ping should follow.
    pub(crate) fn answer_sent(&self, bytes: usize) -> bool {
        self.receipts.lock().answer_sent(bytes) && self.proof == ProofOfReceipt::Pong
    }

    /// Notes that a ping is sent now, which was requested at `wanted_at`. Returns the payload of the ping.
    pub(crate) fn ping(&self, wanted_at: Instant) -> [u8; 8] {
        self.receipts.lock().ping(wanted_at)
    }

    /// The peer sent a pong. Returns whether it answers one of our pings.
    pub(crate) fn pong(&self, payload: &[u8]) -> bool {
        let received = self.receipts.lock().pong(payload);
        let is_answer = received.is_some();
        self.acknowledge(received.into_iter().flatten());
        is_answer
    }

    /// Everything that was sent has been written and flushed, which on some streams proves that the client has received it.
    pub(crate) fn flushed(&self) {
        match self.proof {
            ProofOfReceipt::Pong => {}
            ProofOfReceipt::Flush => {
                let received = self.receipts.lock().flushed();
                self.acknowledge(received);
            }
        }
    }

    /// Number of the last ping that was sent.
    pub(crate) fn last_ping(&self) -> u64 {
        self.receipts.lock().last_ping()
    }

    /// Number of the last ping that the peer has answered.
    pub(crate) fn last_pong(&self) -> u64 {
        self.receipts.lock().last_pong()
    }

    /// The time at which the oldest ping without a pong was requested.
    pub(crate) fn oldest_unanswered(&self) -> Option<Instant> {
        self.receipts.lock().oldest_unanswered()
    }

    fn acknowledge(&self, received: impl IntoIterator<Item = (SentProcess, u64)>) {
        for (SentProcess(process), through) in received {
            process.delivery(|delivery| delivery.acknowledge(self.connection, through));
            process.wake_task();
        }
    }
}
