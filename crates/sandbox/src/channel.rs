//! Sends and receives messages together with descriptors, over a Unix stream socket. A message is its length in four
//! bytes and then its contents; the descriptors travel with the first byte. Does not know what the messages mean.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::message::MAX_MESSAGE_BYTES;

/// The most descriptors that travel with one message.
pub(crate) const MAX_DESCRIPTORS: usize = 8;

const LENGTH_BYTES: usize = 4;

/// Sends a message and `descriptors`. Blocks until the socket has taken everything. A message that the receiver would refuse because of its
/// length fails with `InvalidInput`, and nothing is sent.
pub(crate) fn send(socket: BorrowedFd<'_>, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let length = u32::try_from(message.len()).ok().filter(|_| message.len() <= MAX_MESSAGE_BYTES);
    let length = length.ok_or(io::ErrorKind::InvalidInput)?.to_ne_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let total = LENGTH_BYTES + message.len();
    let mut sent = loop {
        let parts = [IoSlice::new(&length), IoSlice::new(message)];
        match rustix::net::sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    // A kernel that takes fewer than four bytes of a message has no memory at all.
    if sent < LENGTH_BYTES {
        return Err(io::ErrorKind::WriteZero.into());
    }
    while sent < total {
        match rustix::net::send(socket, &message[sent - LENGTH_BYTES..], SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => sent += other?,
        }
    }
    Ok(())
}

/// A message and its descriptors.
#[derive(Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) message: Vec<u8>,
    /// They are close-on-exec.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// True if the kernel has closed descriptors of this message because this process has reached its limit of open files.
    pub(crate) lost_descriptors: bool,
}

/// Receives a message and its descriptors. None if the other end was closed between two messages.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<ReceivedMessage>> {
    let mut length = [0; LENGTH_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let (received, flags) = loop {
        let mut parts = [IoSliceMut::new(&mut length)];
        match rustix::net::recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other.map(|received| (received.bytes, received.flags))?,
        }
    };
    let descriptors = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if received == 0 {
        return Ok(None);
    }
    read_exactly(socket, &mut length[received..])?;
    let length = u32::from_ne_bytes(length) as usize;
    if length > MAX_MESSAGE_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut message = vec![0; length];
    read_exactly(socket, &mut message)?;
    Ok(Some(ReceivedMessage { message, descriptors, lost_descriptors: flags.contains(ReturnFlags::CTRUNC) }))
}

fn read_exactly(socket: BorrowedFd<'_>, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match rustix::io::read(socket.as_fd(), &mut *buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => buffer = &mut buffer[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn a_message_that_the_receiver_would_refuse_is_not_sent() {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let receiver = std::thread::spawn(move || receive(theirs.as_fd()).unwrap().unwrap().message.len());
        let too_long = vec![0; MAX_MESSAGE_BYTES + 1];
        assert_eq!(send(ours.as_fd(), &too_long, &[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        send(ours.as_fd(), &too_long[1..], &[]).unwrap();
        assert_eq!(receiver.join().unwrap(), MAX_MESSAGE_BYTES, "the next message arrives whole");
    }
}
