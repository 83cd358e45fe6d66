//! Callers that ask for the metadata of the same file at the same time share one request to the server. The request
//! and its callers are called a flight. The answer is not kept for later callers.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use protocol::PathUri;
use protocol::fs::FileMetadata;
use tokio::sync::OnceCell;

use crate::error::ExecServerError;

type MetadataResult = Result<FileMetadata, ExecServerError>;

/// The requests for metadata that further callers can join, by path.
#[derive(Default)]
pub(crate) struct MetadataFlights {
    table: Mutex<HashMap<PathUri, Arc<OnceCell<MetadataResult>>>>,
}

impl MetadataFlights {
    /// Waits for the request for this path that another caller has made, or makes `request` if there is none. If the
    /// caller that makes the request drops its future, one of the waiting callers makes its own request.
    pub(crate) async fn join(&self, path: &PathUri, request: impl Future<Output = MetadataResult>) -> MetadataResult {
        let cell = Arc::clone(self.table.lock().entry(path.clone()).or_default());
        let member = FlightMember { flights: self, path, cell };
        member.cell.get_or_init(|| request).await.clone()
    }

    /// Called before a caller changes files. The caller drops the returned value after the change. At both moments
    /// the running requests for metadata stop taking further callers, because their answers may be older than the
    /// change.
    pub(crate) fn mark_files_changing(&self) -> FilesChanging<'_> {
        self.table.lock().clear();
        FilesChanging(self)
    }
}

/// Exists while a caller changes files, see [`MetadataFlights::mark_files_changing`].
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
        let is_in_table = table.get(self.path).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell));
        // The entry is removed if the answer has come, or if this is the last member: then only the table and this
        // member hold the cell.
        if is_in_table && (self.cell.initialized() || Arc::strong_count(&self.cell) == 2) {
            table.remove(self.path);
        }
    }
}
