//! Makes an upload fail if one of its blocks was refused before it was written. Clients send blocks and the commit without waiting for
//! answers, so an upload that lacks a block must not be committed. Errors that happen while a block is written are handled by the upload
//! itself.

use protocol::fs::{RefusedBlock, classify_refused_message};

use crate::connection::Connection;
use crate::session::Session;

/// Makes the upload with this handle fail, because one of its blocks was refused. Does nothing if there is no such
/// upload.
pub(super) fn note_refused_block(session: &Session, handle_id: &str, reason: &str) {
    if let Some(handle) = session.files.handles.find(handle_id) {
        handle.fail_upload(&format!("a block was refused: {reason}"));
    }
}

/// Makes uploads fail because a message was refused; `message` is the whole message or its beginning. If the message
/// was a block, its upload fails. If it is unclear whether the message was a block, all uploads of the session fail.
/// A message of a connection that is attached to no session has no effect.
pub(crate) fn note_refused_message(connection: &Connection, message: &[u8], reason: &str) {
    let Some(session) = connection.own_session().filter(|session| !session.files.handles.is_empty()) else { return };
    match classify_refused_message(message) {
        RefusedBlock::NotABlock => {}
        RefusedBlock::BlockOf(handle_id) => note_refused_block(&session, &handle_id, reason),
        RefusedBlock::MaybeABlock => {
            let sentence = format!("a message that may have been a block of it was refused: {reason}");
            session.files.handles.fail_all_uploads(&sentence);
        }
    }
}
