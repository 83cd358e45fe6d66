//! Looks at the same file that are under way at the same time are one look. Nothing is remembered beyond its answer.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::PathUri;
use protocol::fs::FileMetadata;
use tokio::sync::OnceCell;

use super::super::FileSystemError;

type Found = Result<FileMetadata, FileSystemError>;

/// The looks of a client that are under way.
#[derive(Default)]
pub(crate) struct MetadataFlights {
    table: Mutex<HashMap<PathUri, Arc<OnceCell<Found>>>>,
}

impl MetadataFlights {
    /// Joins whoever looks at this file already, or looks. Whoever goes away in the middle leaves it to another of them.
    pub(super) async fn join(&self, path: &PathUri, look: impl Future<Output = Found>) -> Found {
        let cell = Arc::clone(self.table.lock().entry(path.clone()).or_default());
        let seat = Seat { flights: self, path, cell };
        seat.cell.get_or_init(|| look).await.clone()
    }

    /// Something changes, so whoever looks from now on sees something else; and so again when it has changed.
    pub(super) fn changing(&self) -> Changing<'_> {
        self.table.lock().clear();
        Changing(self)
    }
}

/// A change under way.
pub(super) struct Changing<'a>(&'a MetadataFlights);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.table.lock().clear();
    }
}

struct Seat<'a> {
    flights: &'a MetadataFlights,
    path: &'a PathUri,
    cell: Arc<OnceCell<Found>>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut table = self.flights.table.lock();
        let is_same = table.get(self.path).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell));
        // Answered, or nobody else is interested: the table and this seat are all that hold it.
        if is_same && (self.cell.initialized() || Arc::strong_count(&self.cell) == 2) {
            table.remove(self.path);
        }
    }
}
