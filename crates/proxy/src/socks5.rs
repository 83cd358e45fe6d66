//! SOCKS5 (RFC 1928), without authentication, and with the command CONNECT only. The other commands get the reply
//! that they are not supported: BIND would let a program listen, and UDP ASSOCIATE would send packets that no rule
//! checks. Start with [`serve`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::activity::WatchedStream;
use crate::connect_failure::ConnectFailure;
use crate::host::TargetHost;
use crate::policy::ProxyProtocol;
use crate::program_stream::reset_by_program;
use crate::request_gate::TargetRequest;
use crate::serve::ConnectionContext;
use crate::tunnel::tunnel;

/// The first byte of every SOCKS5 message.
pub(crate) const VERSION: u8 = 5;

const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;

const COMMAND_CONNECT: u8 = 1;
const COMMAND_UDP_ASSOCIATE: u8 = 3;

const ADDRESS_IPV4: u8 = 1;
const ADDRESS_NAME: u8 = 3;
const ADDRESS_IPV6: u8 = 4;

/// Codes of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum SocksReply {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    TimedOut = 6,
    CommandNotSupported = 7,
    AddressTypeNotSupported = 8,
}

/// What a program asks for.
enum SocksRequest {
    Target(TargetRequest),
    /// The request cannot be served, whatever the rules say.
    Unusable(SocksReply),
}

/// Serves one SOCKS5 connection. A program that breaks the protocol is disconnected.
pub(crate) async fn serve(mut stream: TcpStream, connection: &ConnectionContext) {
    let handshake = timeout(connection.limits.handshake_timeout, read_handshake(&mut stream, connection.client));
    let Ok(Ok(request)) = handshake.await else { return };
    let reply = match request {
        SocksRequest::Unusable(reply) => reply,
        SocksRequest::Target(request) => match connect(&request, &stream, connection).await {
            Some(Ok(target)) => {
                if send_reply(&mut stream, SocksReply::Succeeded, target.local_addr().ok()).await.is_ok() {
                    tunnel(WatchedStream::new(stream, connection.activity.clone()), target).await;
                }
                return;
            }
            Some(Err(refusal)) => reply_for(&refusal, request.protocol),
            None => return,
        },
    };
    // If the reply cannot be sent, the program has gone.
    let _unsent = send_reply(&mut stream, reply, None).await;
}

/// None: the program has closed its connection meanwhile.
async fn connect(
    request: &TargetRequest,
    stream: &TcpStream,
    connection: &ConnectionContext,
) -> Option<Result<TcpStream, ConnectFailure>> {
    tokio::select! {
        connected = connection.connect_if_allowed(request) => Some(connected),
        () = closed_by_program(stream) => None,
    }
}

/// Waits until the program closes its connection. If the program sends bytes before it has the reply, which is
/// allowed, only a reset of the connection ends the wait.
async fn closed_by_program(stream: &TcpStream) {
    if matches!(stream.peek(&mut [0]).await, Ok(1..)) {
        reset_by_program(stream).await;
    }
}

async fn read_handshake(stream: &mut TcpStream, client: IpAddr) -> io::Result<SocksRequest> {
    if stream.read_u8().await? != VERSION {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut methods = vec![0; usize::from(stream.read_u8().await?)];
    stream.read_exact(&mut methods).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        stream.write_all(&[VERSION, NO_ACCEPTABLE_METHOD]).await?;
        return Err(io::ErrorKind::InvalidData.into());
    }
    stream.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    read_request(stream, client).await
}

async fn read_request(stream: &mut TcpStream, client: IpAddr) -> io::Result<SocksRequest> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [version, command, _, address_type] = head;
    if version != VERSION {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let host = match address_type {
        ADDRESS_IPV4 => Some(IpAddr::V4(Ipv4Addr::from(stream.read_u32().await?)).into()),
        ADDRESS_IPV6 => Some(IpAddr::V6(Ipv6Addr::from(stream.read_u128().await?)).into()),
        ADDRESS_NAME => {
            let mut name = vec![0; usize::from(stream.read_u8().await?)];
            stream.read_exact(&mut name).await?;
            std::str::from_utf8(&name).ok().and_then(|name| TargetHost::parse(name).ok())
        }
        // The length of the rest is unknown, so nothing more can be read.
        _ => return Ok(SocksRequest::Unusable(SocksReply::AddressTypeNotSupported)),
    };
    let port = stream.read_u16().await?;
    let protocol = match command {
        COMMAND_CONNECT => ProxyProtocol::Socks5Tcp,
        COMMAND_UDP_ASSOCIATE => ProxyProtocol::Socks5Udp,
        _ => return Ok(SocksRequest::Unusable(SocksReply::CommandNotSupported)),
    };
    // For UDP ASSOCIATE the port may be 0: it is the program's own address.
    let Some(host) = host.filter(|_| port != 0 || protocol == ProxyProtocol::Socks5Udp) else {
        return Ok(SocksRequest::Unusable(SocksReply::GeneralFailure));
    };
    Ok(SocksRequest::Target(TargetRequest { protocol, host, port, method: None, client }))
}

fn reply_for(refusal: &ConnectFailure, protocol: ProxyProtocol) -> SocksReply {
    match refusal {
        ConnectFailure::Policy { .. } if protocol == ProxyProtocol::Socks5Udp => SocksReply::CommandNotSupported,
        ConnectFailure::Policy { .. } => SocksReply::NotAllowed,
        ConnectFailure::Unresolved => SocksReply::HostUnreachable,
        ConnectFailure::TimedOut => SocksReply::TimedOut,
        ConnectFailure::Unreachable(kind) => match kind {
            io::ErrorKind::ConnectionRefused => SocksReply::ConnectionRefused,
            io::ErrorKind::NetworkUnreachable => SocksReply::NetworkUnreachable,
            io::ErrorKind::HostUnreachable => SocksReply::HostUnreachable,
            io::ErrorKind::TimedOut => SocksReply::TimedOut,
            _ => SocksReply::GeneralFailure,
        },
    }
}

/// `bound` is the address from which the proxy has connected. A refusal has none.
async fn send_reply(stream: &mut TcpStream, reply: SocksReply, bound: Option<SocketAddr>) -> io::Result<()> {
    let bound = bound.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let mut bytes = vec![VERSION, reply as u8, 0];
    match bound.ip() {
        IpAddr::V4(address) => {
            bytes.push(ADDRESS_IPV4);
            bytes.extend(address.octets());
        }
        IpAddr::V6(address) => {
            bytes.push(ADDRESS_IPV6);
            bytes.extend(address.octets());
        }
    }
    bytes.extend(bound.port().to_be_bytes());
    stream.write_all(&bytes).await
}
