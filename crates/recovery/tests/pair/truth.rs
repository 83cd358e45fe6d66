//! What the process really did, to compare with what readers are handed.

use std::collections::BTreeMap;

use protocol::Stream;
use recovery::{Event, Exit};

/// One step of a process that cannot be divided. The server decides how bytes are cut into chunks, so bytes are compared one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symbol {
    Byte(Stream, u8),
    Exited { code: i32, timed_out: bool },
    Closed,
}

/// Everything that the process did, and every event that the server made of it.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    symbols: Vec<Symbol>,
    /// The first version of each event that any reader got.
    events: BTreeMap<u64, Event>,
}

impl Truth {
    pub(crate) fn wrote(&mut self, stream: Stream, bytes: &[u8]) {
        self.symbols.extend(bytes.iter().map(|byte| Symbol::Byte(stream, *byte)));
    }

    pub(crate) fn exited(&mut self, code: i32, timed_out: bool) {
        self.symbols.push(Symbol::Exited { code, timed_out });
    }

    pub(crate) fn closed(&mut self) {
        self.symbols.push(Symbol::Closed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.symbols.last() == Some(&Symbol::Closed)
    }

    pub(crate) fn len(&self) -> usize {
        self.symbols.len()
    }

    /// Where in the truth the output begins that follows so many bytes of output.
    pub(crate) fn after_bytes(&self, bytes: u64) -> usize {
        let is_byte = |symbol: &Symbol| matches!(symbol, Symbol::Byte(..));
        let mut positions = (0..self.symbols.len()).filter(|position| is_byte(&self.symbols[*position]));
        positions.nth(bytes as usize).unwrap_or(self.symbols.len())
    }

    /// An event that was sent to some reader. The same number always means the same event.
    pub(crate) fn check_same(&mut self, seq: u64, event: &Event) {
        let first = self.events.entry(seq).or_insert_with(|| said(event));
        assert_eq!(*first, said(event), "event {seq} was sent with another content before");
    }

    /// Checks that an event continues the truth at `position`, and returns where it ends.
    pub(crate) fn check_next(&self, position: usize, event: &Event) -> usize {
        let symbols: Vec<Symbol> = match event {
            Event::Output { stream, chunk } => chunk.iter().map(|byte| Symbol::Byte(*stream, *byte)).collect(),
            Event::Exited(exit) => vec![Symbol::Exited { code: exit.code, timed_out: exit.timed_out }],
            Event::Closed => vec![Symbol::Closed],
        };
        let end = position + symbols.len();
        assert_eq!(self.symbols.get(position..end), Some(&symbols[..]), "not what the process did next");
        end
    }
}

/// An event without what an old server says of the sandbox only in the answer to a read.
fn said(event: &Event) -> Event {
    match event {
        Event::Exited(exit) => Event::Exited(Exit { sandbox_denied: None, ..*exit }),
        event => event.clone(),
    }
}
