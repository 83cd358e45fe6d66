//! `environmentConfig/read`: returns settings from the configuration files of this machine. The keys of the request
//! are checked at once, and the files are read on a thread that may block.

use std::sync::Arc;

use protocol::{ConfigReadParams, ConfigReadResult, ErrorCode, ErrorData, WireError, encode_response};

use crate::connection::Call;
use crate::environment::{ConfigError, ConfigLocations};
use crate::files::MemoryNeed;
use crate::session::Session;

pub(super) fn read(call: Call, params: ConfigReadParams, session: Arc<Session>) {
    if let Err(error) = check(&params) {
        return call.finish::<()>(Err(error));
    }
    let connection = Arc::clone(&call.connection);
    connection.spawn(async move {
        let shared = Arc::clone(&call.connection.shared);
        let id = call.id().clone();
        let operation = move || {
            read_files(&params, &ConfigLocations::of_machine(&shared.env)).map(|result| encode_response(&id, &result))
        };
        // The permit is held until the answer has its memory permits, so that unsent answers cannot pile up.
        match session.files.operations.run_for_reply(MemoryNeed::Large, operation).await {
            Some((Ok(message), _permit)) => {
                let room = call.connection.outbound.room_for_reply(message.len()).await;
                call.finish_encoded(message, room);
            }
            Some((Err(error), _)) => call.finish::<()>(Err(error)),
            // The operation panicked. Dropping `call` answers with an error.
            None => {}
        }
    });
}

/// Refuses a request for no key, and a key path without a key.
fn check(params: &ConfigReadParams) -> Result<(), WireError> {
    let mut paths = params.config_paths.iter().chain(&params.requirements_paths).peekable();
    if paths.peek().is_none() {
        return Err(WireError::invalid_params("at least one config or requirements path is required"));
    }
    if paths.any(Vec::is_empty) {
        return Err(WireError::invalid_params("TOML paths must contain at least one key segment"));
    }
    Ok(())
}

/// Reads the files. May block.
fn read_files(params: &ConfigReadParams, locations: &ConfigLocations) -> Result<ConfigReadResult, WireError> {
    let cwd = params.cwd.to_native().map_err(|error| WireError::invalid_params(error.to_string()))?;
    locations.read(&cwd, &params.config_paths, &params.requirements_paths).map_err(|error| {
        let code = match &error {
            ConfigError::CwdTooLong { .. } => ErrorCode::InvalidParams,
            ConfigError::Home { .. } | ConfigError::Load { .. } => ErrorCode::Internal,
        };
        let wire = WireError::new(code, error.to_string());
        match error.cause() {
            Some(cause) => wire.with_data(ErrorData::from_io(cause.io(), cause.path())),
            None => wire,
        }
    })
}
