//! `environmentConfig/read`: checked at once, read on a thread that may block.

use std::sync::Arc;

use protocol::{ConfigReadParams, ConfigReadResult, ErrorCode, ErrorData, WireError};

use crate::connection::Call;
use crate::environment::{ConfigError, ConfigPlaces};
use crate::session::Session;

/// What the files of one answer have at most together is not known beforehand; most are small.
const REPLY_BYTES: usize = 64 << 10;

pub(super) fn read(call: Call, params: ConfigReadParams, session: Arc<Session>) {
    if let Err(error) = check(&params) {
        return call.finish::<()>(Err(error));
    }
    let connection = Arc::clone(&call.connection);
    connection.spawn(async move {
        let room = call.connection.outbound.room_for_reply(REPLY_BYTES).await;
        let shared = Arc::clone(&call.connection.shared);
        let done = session.files.work.run(move || read_now(&params, &ConfigPlaces::of_machine(&shared.env))).await;
        if let Some(result) = done {
            call.finish_covering(result, None, room);
        }
    });
}

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

fn read_now(params: &ConfigReadParams, places: &ConfigPlaces) -> Result<ConfigReadResult, WireError> {
    let cwd = params.cwd.to_native().map_err(|error| {
        WireError::invalid_params(format!("cwd URI `{}` is not valid on this exec-server host: {error}", params.cwd))
    })?;
    places.read(&cwd, &params.config_paths, &params.requirements_paths).map_err(|error| {
        let wire = WireError::new(ErrorCode::Internal, error.to_string());
        match &error {
            ConfigError::Unreadable { path, source } => wire.with_data(ErrorData::from_io(source.io(), Some(path))),
            _ => wire,
        }
    })
}
