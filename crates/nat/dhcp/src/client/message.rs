//! DHCP messages: those that a client sends, and what it needs of those that it gets.

use super::{Config, IgnoreReason};
use dhcproto::v4::{DhcpOption, Flags, HType, Message, MessageType, Opcode, OptionCode, borrowed};
use dhcproto::{Encodable, Encoder};
use packet::Mac;
use std::net::Ipv4Addr;

/// Relays and servers may drop what is shorter than a BOOTP message (RFC 1542 section 2.1).
const LEAST: usize = 300;
/// Longest message that a server may send, as an IP packet (option 57): what fits in a frame.
const MTU: u16 = 1500;

/// What a client says (RFC 2131 table 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    /// Who is there? With the address it would like.
    Discover { wanted: Option<Ipv4Addr> },
    /// I take this offer (SELECTING).
    Select { address: Ipv4Addr, server: Ipv4Addr },
    /// I had this (INIT-REBOOT).
    Reboot { address: Ipv4Addr },
    /// I have this, and want it for longer (RENEWING, REBINDING).
    Extend { address: Ipv4Addr },
    /// Somebody else has this.
    Decline { address: Ipv4Addr, server: Ipv4Addr },
    /// I no longer need this.
    Release { address: Ipv4Addr, server: Ipv4Addr },
}

/// The bytes of a message. `None`: it cannot be written, which no message of ours is.
pub(super) fn request(request: &Request, mac: Mac, xid: u32, secs: u16, config: &Config) -> Option<Vec<u8>> {
    use DhcpOption::{RequestedIpAddress, ServerIdentifier};
    let none = Ipv4Addr::UNSPECIFIED;
    let (kind, ciaddr, wanted, server) = match *request {
        Request::Discover { wanted } => (MessageType::Discover, none, wanted, None),
        Request::Select { address, server } => (MessageType::Request, none, Some(address), Some(server)),
        Request::Reboot { address } => (MessageType::Request, none, Some(address), None),
        Request::Extend { address } => (MessageType::Request, address, None, None),
        Request::Decline { address, server } => (MessageType::Decline, none, Some(address), Some(server)),
        Request::Release { address, server } => (MessageType::Release, address, None, Some(server)),
    };
    let asks = matches!(kind, MessageType::Discover | MessageType::Request);
    let mut message = Message::new_with_id(xid, ciaddr, none, none, none, &mac);
    message.set_secs(secs);
    if config.broadcast && asks && ciaddr == none {
        message.set_flags(Flags::default().set_broadcast());
    }
    let options = message.opts_mut();
    options.insert(DhcpOption::MessageType(kind));
    // The same in each message, for servers know the client by it (RFC 2131 section 2).
    options.insert(DhcpOption::ClientIdentifier([&[1], &mac[..]].concat()));
    wanted.map(|address| options.insert(RequestedIpAddress(address)));
    server.map(|server| options.insert(ServerIdentifier(server)));
    if asks {
        config.ask_lease.map(|seconds| options.insert(DhcpOption::AddressLeaseTime(seconds)));
        options.insert(DhcpOption::MaxMessageSize(MTU));
        options.insert(DhcpOption::ParameterRequestList(vec![
            OptionCode::SubnetMask,
            OptionCode::Router,
            OptionCode::AddressLeaseTime,
            OptionCode::ServerIdentifier,
            OptionCode::Renewal,
            OptionCode::Rebinding,
        ]));
    }
    let mut bytes = Vec::with_capacity(LEAST);
    message.encode(&mut Encoder::new(&mut bytes)).ok()?;
    bytes.resize(bytes.len().max(LEAST), 0);
    Some(bytes)
}

/// What kind of reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Offer,
    Ack,
    Nak,
}

/// What a server says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply {
    pub kind: Kind,
    pub xid: u32,
    pub mac: Mac,
    pub address: Ipv4Addr,
    pub server: Ipv4Addr,
    pub mask: Option<Ipv4Addr>,
    pub router: Option<Ipv4Addr>,
    pub lease: Option<u32>,
    pub t1: Option<u32>,
    pub t2: Option<u32>,
}

/// Whose reply it is, if it is one to an Ethernet address.
pub(super) fn client(payload: &[u8]) -> Option<Mac> {
    let message = borrowed::Message::new(payload).ok()?;
    // Asked first: there are never fewer bytes than these six.
    let ethernet = message.htype() == HType::Eth && usize::from(message.hlen()) == Mac::default().len();
    (ethernet && message.opcode() == Opcode::BootReply).then(|| Mac::try_from(message.chaddr()).ok())?
}

impl Reply {
    /// Read one: what the fixed fields and the options field say.
    pub(super) fn parse(payload: &[u8]) -> Result<Self, IgnoreReason> {
        let mac = client(payload).ok_or(IgnoreReason::Malformed)?;
        let message = borrowed::Message::new(payload).map_err(|_| IgnoreReason::Malformed)?;
        let (mut kind, mut server, mut mask, mut router) = (None, None, None, None);
        let (mut lease, mut t1, mut t2) = (None, None, None);
        for option in message.opts() {
            let data = option.data();
            let number = || data.try_into().map(u32::from_be_bytes).map_err(|_| IgnoreReason::Malformed);
            match option.code() {
                OptionCode::MessageType => {
                    kind = Some(match data {
                        [2] => Kind::Offer,
                        [5] => Kind::Ack,
                        [6] => Kind::Nak,
                        _ => return Err(IgnoreReason::Malformed),
                    });
                }
                OptionCode::ServerIdentifier => server = Some(number()?.into()),
                OptionCode::SubnetMask => mask = Some(number()?.into()),
                OptionCode::Router => router = data.first_chunk().copied().map(Ipv4Addr::from),
                OptionCode::AddressLeaseTime => lease = Some(number()?),
                OptionCode::Renewal => t1 = Some(number()?),
                OptionCode::Rebinding => t2 = Some(number()?),
                _ => {}
            }
        }
        let kind = kind.ok_or(IgnoreReason::Malformed)?;
        let server = server.ok_or(IgnoreReason::Malformed)?;
        Ok(Self {
            kind,
            xid: message.xid(),
            mac,
            address: message.yiaddr(),
            server,
            mask,
            router,
            lease,
            t1,
            t2,
        })
    }
}
