#![allow(clippy::unwrap_used)]

mod life;
mod malformed;
mod many;

use super::*;
use dhcproto::v4::{DhcpOption, Flags, Message, MessageType, Opcode, OptionCode};
use dhcproto::{Decodable, Decoder, Encodable, Encoder};
use packet::ethernet::{BROADCAST, Ethernet};
use packet::udp::Datagram;
use packet::{Layers, Mac};
use std::net::Ipv4Addr;

const MAC: Mac = [2, 0, 0, 0, 0, 1];
const GATE: Mac = [2, 0, 0, 0, 0, 0xfe];
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 77);

fn config() -> Config {
    Config { start_delay: [0, 0], ..Config::default() }
}

fn clients() -> Clients {
    let mut clients = Clients::new(config(), 7);
    clients.add(MAC, 0).unwrap();
    clients
}

/// A message of a client, as others read it.
#[derive(Debug)]
struct Sent {
    to: Mac,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    message: Message,
}

impl Sent {
    fn read(frame: &[u8]) -> Self {
        let header = Ethernet::parse(frame).unwrap();
        let layers = Layers::find(frame).unwrap();
        let datagram = Datagram::parse(frame, &layers).unwrap();
        assert_eq!((datagram.source, datagram.destination), (68, 67));
        assert!(datagram.payload.len() >= 300);
        assert_eq!(layers.end, frame.len());
        let message = Message::decode(&mut Decoder::new(datagram.payload)).unwrap();
        assert_eq!((message.opcode(), message.chaddr()), (Opcode::BootRequest, &header.source[..]));
        let id = [&[1], &header.source[..]].concat();
        assert_eq!(message.opts().get(OptionCode::ClientIdentifier), Some(&DhcpOption::ClientIdentifier(id)));
        let addresses = layers.addresses(frame);
        let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&addresses[at..at + 4]).unwrap());
        Self { to: header.destination, source: address(0), destination: address(4), message }
    }

    fn kind(&self) -> MessageType {
        self.message.opts().msg_type().unwrap()
    }

    fn mac(&self) -> Mac {
        self.message.chaddr().try_into().unwrap()
    }

    fn wanted(&self) -> Option<Ipv4Addr> {
        match self.message.opts().get(OptionCode::RequestedIpAddress) {
            Some(DhcpOption::RequestedIpAddress(address)) => Some(*address),
            _ => None,
        }
    }

    fn server(&self) -> Option<Ipv4Addr> {
        match self.message.opts().get(OptionCode::ServerIdentifier) {
            Some(DhcpOption::ServerIdentifier(address)) => Some(*address),
            _ => None,
        }
    }

    fn is_broadcast(&self) -> bool {
        (self.to, self.destination) == (BROADCAST, Ipv4Addr::BROADCAST)
    }
}

/// What a server says, to be changed by who wants another thing said.
#[derive(Debug, Clone)]
struct Says {
    kind: MessageType,
    xid: u32,
    mac: Mac,
    address: Ipv4Addr,
    server: Ipv4Addr,
    lease: u32,
    more: Vec<DhcpOption>,
}

impl Says {
    fn to(sent: &Sent, kind: MessageType) -> Self {
        Self {
            kind,
            xid: sent.message.xid(),
            mac: sent.mac(),
            address: ADDRESS,
            server: SERVER,
            lease: 3600,
            more: vec![DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 255, 0))],
        }
    }

    fn payload(&self) -> Vec<u8> {
        let none = Ipv4Addr::UNSPECIFIED;
        let mut message = Message::new_with_id(self.xid, none, self.address, self.server, none, &self.mac);
        message.set_opcode(Opcode::BootReply);
        let options = message.opts_mut();
        options.insert(DhcpOption::MessageType(self.kind));
        options.insert(DhcpOption::ServerIdentifier(self.server));
        if self.kind != MessageType::Nak {
            options.insert(DhcpOption::AddressLeaseTime(self.lease));
        }
        for option in &self.more {
            options.insert(option.clone());
        }
        let mut bytes = Vec::new();
        message.encode(&mut Encoder::new(&mut bytes)).unwrap();
        bytes
    }

    fn frame(&self) -> Vec<u8> {
        in_frame(self.mac, &self.payload())
    }
}

/// A frame from port 67 to 68 with any payload; no UDP checksum.
fn in_frame(to: Mac, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 42];
    let ethernet = Ethernet { destination: to, source: GATE, kind: packet::ethernet::kind::IPV4 };
    ethernet.emit(frame.first_chunk_mut().unwrap());
    let length = u16::try_from(payload.len() + 8).unwrap();
    let ip = packet::ipv4::Ipv4 {
        source: SERVER,
        destination: Ipv4Addr::BROADCAST,
        protocol: 17,
        ttl: 64,
        dscp: 0,
        payload: length,
    };
    ip.emit((&mut frame[14..34]).try_into().unwrap());
    frame[34..36].copy_from_slice(&67_u16.to_be_bytes());
    frame[36..38].copy_from_slice(&68_u16.to_be_bytes());
    frame[38..40].copy_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// The one frame that is to be sent.
fn one(clients: &mut Clients) -> Sent {
    let sent = Sent::read(&clients.transmit().expect("a frame"));
    assert_eq!(clients.transmit(), None);
    sent
}

/// Let time pass until something is due, and do it.
fn wait(clients: &mut Clients) -> u64 {
    let now = clients.next_due().expect("something is due");
    clients.advance(now);
    now
}

/// Give the client its address at `now`; what it then says happened.
fn bind(clients: &mut Clients, now: u64, change: impl Fn(&mut Says)) -> Option<Event> {
    clients.advance(now);
    let discover = one(clients);
    assert_eq!(discover.kind(), MessageType::Discover);
    let mut offer = Says::to(&discover, MessageType::Offer);
    change(&mut offer);
    assert_eq!(clients.receive(&offer.frame(), now), Verdict::Accepted);
    let request = one(clients);
    let mut ack = Says::to(&request, MessageType::Ack);
    change(&mut ack);
    assert_eq!(clients.receive(&ack.frame(), now), Verdict::Accepted);
    clients.event()
}
