//! The client of the simulation: an `EventOrder`, and the check that every event which it hands out is what the
//! simulated process did next (`truth.rs`).

use protocol::ReadResult;
use recovery::{CatchUpError, Event, EventOrder, OrderLimits};

use crate::schedule::ServerKind;
use crate::server::{Push, SimulatedServer};
use crate::truth::Truth;

pub(crate) struct SimulatedClient {
    order: EventOrder,
    /// How many symbols of the [`Truth`] were handed out. A symbol is a byte of output, the exit or the close.
    position: usize,
    received_bytes: u64,
    /// A close without a sequence number came while the answer to a read was awaited. The `EventOrder` gets the close
    /// after that answer.
    has_held_close: bool,
    failure: Option<CatchUpError>,
}

impl SimulatedClient {
    pub(crate) fn new() -> Self {
        Self {
            order: EventOrder::new(OrderLimits::default()),
            position: 0,
            received_bytes: 0,
            has_held_close: false,
            failure: None,
        }
    }

    /// Sequence number of the last event that was handed out.
    pub(crate) fn last(&self) -> u64 {
        self.order.last()
    }

    /// Whether an event waits for an earlier event that did not come. False for a client that has failed.
    pub(crate) fn has_hole(&self) -> bool {
        !self.has_failed() && self.order.has_hole()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Takes a pushed message. `awaits_answer` says whether the answer to a read is still to come.
    pub(crate) fn take_push(&mut self, push: Push, awaits_answer: bool) {
        match push {
            _ if self.has_failed() => {}
            Push::Event(seq, event) => self.order.handle_event(seq, event).expect("the limit is not reached"),
            Push::UnnumberedClose if awaits_answer => self.has_held_close = true,
            Push::UnnumberedClose => self.order.handle_unnumbered_close(),
            Push::Ping(_) => {}
        }
    }

    /// Takes the answer to a read after [`SimulatedClient::last`]. `dropped_bytes` is the number of bytes of output
    /// that the server no longer retained when it answered. If the answer is refused, checks that this kind of server
    /// may give such an answer: for example, a loss of output is an error of the test unless the server has dropped
    /// output.
    pub(crate) fn take_answer(
        &mut self,
        answer: ReadResult,
        dropped_bytes: u64,
        kind: ServerKind,
        server: &SimulatedServer,
    ) {
        if self.has_failed() || self.order.is_closed() {
            return;
        }
        let through = answer.next_seq - 1;
        let ends_in_output = answer.chunks.last().is_some_and(|chunk| chunk.seq == through);
        let missed_bytes = dropped_bytes.saturating_sub(self.received_bytes);
        match self.order.handle_read(answer.clone(), self.received_bytes) {
            Ok(()) => {
                if std::mem::take(&mut self.has_held_close) {
                    self.order.handle_unnumbered_close();
                }
            }
            Err(CatchUpError::OutputLost { through: reported, lost_bytes }) => {
                assert!(server.may_lose_output, "output was lost that the process should have waited for");
                assert!(answer.gap && reported == through);
                let lost_bytes = lost_bytes.expect("our server says how much it has dropped");
                assert!((1..=missed_bytes).contains(&lost_bytes), "{lost_bytes} of {missed_bytes} bytes");
                self.failure = Some(CatchUpError::OutputLost { through, lost_bytes: Some(lost_bytes) });
            }
            Err(error @ CatchUpError::NotRetained(_)) => {
                assert!(kind != ServerKind::Ours && missed_bytes > 0, "{error} after {} of {answer:?}", self.last());
                self.failure = Some(error);
            }
            Err(error @ CatchUpError::CloseConflict(_)) => {
                assert!(kind == ServerKind::Old && answer.closed && ends_in_output, "{error}: {answer:?}");
                self.failure = Some(error);
            }
            Err(error) => panic!("{error} after {} of {answer:?}", self.last()),
        }
    }

    /// Takes the answer to the first read of a client that does not know the process. If there is a gap, the client begins after the gap.
    pub(crate) fn begin(&mut self, answer: ReadResult, truth: &Truth) {
        if answer.gap {
            let first = answer.chunks.first().map_or(answer.next_seq, |chunk| chunk.seq);
            self.order = EventOrder::after(first - 1, OrderLimits::default());
            self.received_bytes = answer.dropped_bytes.expect("our server says how much it has dropped");
            self.position = match answer.chunks.is_empty() {
                // If the server retains no output of a closed process, only the close is handed out.
                true => truth.len() - usize::from(answer.closed),
                false => truth.after_bytes(self.received_bytes),
            };
        }
        self.order.handle_read(answer, self.received_bytes).expect("the answer has every event after the gap");
    }

    /// Hands out every event that is ready, and checks it.
    pub(crate) fn deliver_events(&mut self, truth: &Truth) {
        if self.has_failed() {
            return;
        }
        while let Some((_, event)) = self.order.poll_event() {
            self.position = truth.check_next(self.position, &event);
            self.received_bytes += event.bytes() as u64;
            assert_eq!(self.order.is_closed(), event == Event::Closed);
        }
    }

    /// Whether everything that the process did was handed out.
    pub(crate) fn is_complete(&self, truth: &Truth) -> bool {
        self.position == truth.len() && self.order.is_closed() == truth.is_closed() && !self.order.has_hole()
    }
}
