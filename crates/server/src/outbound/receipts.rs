//! The receipts of one connection, joined to the processes whose events they are about. The rules are in [`session::Receipts`]; what
//! counts as a proof, a pong or a finished write, is a property of the connection's stream ([`ReceiptProof`]).

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use session::{ConnectionNumber, Receipts};
use transport::ReceiptProof;

use crate::process::Process;

pub(crate) struct ConnectionReceipts {
    connection: ConnectionNumber,
    proof: ReceiptProof,
    receipts: Mutex<Receipts<SentProcess>>,
}

/// Compares processes by address, which is quicker than by name and tells apart two processes that had the same name.
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
    /// `retain_bytes` is how much output each process retains.
    pub(crate) fn new(connection: ConnectionNumber, proof: ReceiptProof, retain_bytes: usize) -> Self {
        Self { connection, proof, receipts: Mutex::new(Receipts::new(retain_bytes)) }
    }

    /// Events up to `through` were sent. Returns whether a ping should follow.
    pub(crate) fn sent(&self, process: &Arc<Process>, through: u64, output_bytes: usize) -> bool {
        let ends_a_stretch = self.receipts.lock().sent(SentProcess(Arc::clone(process)), through, output_bytes);
        ends_a_stretch && self.proof == ReceiptProof::Pong
    }

    /// The last events of a process were sent. Returns whether a ping should follow.
    pub(crate) fn sent_last(&self, process: &Arc<Process>, output_bytes: usize) -> bool {
        let ends_a_stretch = self.receipts.lock().sent_last(&SentProcess(Arc::clone(process)), output_bytes);
        ends_a_stretch && self.proof == ReceiptProof::Pong
    }

    /// An answer of so many bytes was sent. Returns whether a ping should follow.
    pub(crate) fn answer_sent(&self, bytes: usize) -> bool {
        self.receipts.lock().answer_sent(bytes) && self.proof == ReceiptProof::Pong
    }

    /// The payload of the ping that is sent now and has been wanted since `wanted_at`.
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

    /// Everything that was sent has been written and flushed. On some streams that proves that it was received.
    pub(crate) fn flushed(&self) {
        match self.proof {
            ReceiptProof::Pong => {}
            ReceiptProof::Flush => {
                let received = self.receipts.lock().flushed();
                self.acknowledge(received);
            }
        }
    }

    pub(crate) fn last_ping(&self) -> u64 {
        self.receipts.lock().last_ping()
    }

    pub(crate) fn last_pong(&self) -> u64 {
        self.receipts.lock().last_pong()
    }

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
