//! Requests for the metadata of the same file that are made at the same time share one request to the server. Nothing is kept after its
//! answer.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::PathUri;
use protocol::fs::FileMetadata;
use tokio::sync::OnceCell;

use crate::error::ExecServerError;

type MetadataResult = Result<FileMetadata, ExecServerError>;

/// The requests for metadata that are not answered yet, by path.
#[derive(Default)]
pub(crate) struct MetadataFlights {
    table: Mutex<HashMap<PathUri, Arc<OnceCell<MetadataResult>>>>,
}

impl MetadataFlights {
    /// Waits for the request that is made for this path already, or makes `request`. If the caller that makes it goes away, one of the
    /// others makes its own.
    pub(crate) async fn join(&self, path: &PathUri, request: impl Future<Output = MetadataResult>) -> MetadataResult {
        let cell = Arc::clone(self.table.lock().entry(path.clone()).or_default());
        let member = FlightMember { flights: self, path, cell };
        member.cell.get_or_init(|| request).await.clone()
    }

    /// Marks a change of files. A request that was made before the change began, or before it ended, is not shared with later callers.
    pub(crate) fn changing(&self) -> FilesChanging<'_> {
        self.table.lock().clear();
        FilesChanging(self)
    }
}

/// Files change until this is dropped.
pub(crate) struct FilesChanging<'a>(&'a MetadataFlights);

impl Drop for FilesChanging<'_> {
    fn drop(&mut self) {
        self.0.table.lock().clear();
    }
}

/// A caller that waits for a shared request.
struct FlightMember<'a> {
    flights: &'a MetadataFlights,
    path: &'a PathUri,
    cell: Arc<OnceCell<MetadataResult>>,
}

impl Drop for FlightMember<'_> {
    fn drop(&mut self) {
        let mut table = self.flights.table.lock();
        let is_same = table.get(self.path).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell));
        // Either the answer has come, or this is the last member: the table and this value hold the cell, and nobody else.
        if is_same && (self.cell.initialized() || Arc::strong_count(&self.cell) == 2) {
            table.remove(self.path);
        }
    }
}
