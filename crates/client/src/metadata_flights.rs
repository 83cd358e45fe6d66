//! Callers that ask for the metadata of the same file at the same time share one request to the server. The answer is not kept for later
//! callers.

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
    /// Waits for the request for this path that another caller has made, or makes `request`. If the caller that makes the request drops its
    /// future, one of the waiting callers makes its own request.
    pub(crate) async fn join(&self, path: &PathUri, request: impl Future<Output = MetadataResult>) -> MetadataResult {
        let cell = Arc::clone(self.table.lock().entry(path.clone()).or_default());
        let member = FlightMember { flights: self, path, cell };
        member.cell.get_or_init(|| request).await.clone()
    }

    /// Marks that a caller changes files until the returned value is dropped. A request for metadata that was made before the change began,
    /// or before it ended, is not shared with later callers.
    pub(crate) fn mark_files_changing(&self) -> FilesChanging<'_> {
        self.table.lock().clear();
        FilesChanging(self)
    }
}

/// Files change until this value is dropped.
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
        // The entry is removed if the answer has come, or if this is the last member: then only the table and this member hold the cell.
        if is_same && (self.cell.initialized() || Arc::strong_count(&self.cell) == 2) {
            table.remove(self.path);
        }
    }
}
