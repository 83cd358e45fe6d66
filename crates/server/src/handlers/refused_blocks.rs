//! Blocks of uploads that were refused before they were tried. Clients send blocks and the commit without waiting for answers, so an
//! upload that lacks a block must not be committed, whatever the reason was. What fails later, on the disk, is known to the upload itself.

use protocol::fs::{RefusedBlock, refused_block};

use crate::connection::Connection;
use crate::session::Session;

/// A block of this upload was refused. Nothing happens if there is no such upload.
pub(super) fn note_refused_block(session: &Session, handle_id: &str, reason: &str) {
    if let Some(slot) = session.files.handles.find(handle_id) {
        slot.note_refused_block(&format!("a block was refused: {reason}"));
    }
}

/// A message was refused, of which `message` is all or the beginning. If it was a block, its upload ends; if it may have been one of
/// any upload, all of them do. Only the attached connection speaks for the client: what others are refused ends nothing.
pub(crate) fn note_refused_message(connection: &Connection, message: &[u8], reason: &str) {
    let Some(session) = connection.own_session().filter(|session| !session.files.handles.is_empty()) else { return };
    match refused_block(message) {
        RefusedBlock::NotABlock => {}
        RefusedBlock::BlockOf(handle_id) => note_refused_block(&session, &handle_id, reason),
        RefusedBlock::MaybeABlock => {
            let sentence = format!("a message that may have been a block of it was refused: {reason}");
            session.files.handles.note_refused_block_of_any(&sentence);
        }
    }
}
