//! A DHCP server for tests: it hears frames and answers with frames.

use packet::checksum::{Sum, pseudo_header};
use packet::ethernet::{self, Ethernet, Tags};
use packet::ipv4::{self, Ipv4};
use packet::{Mac, udp};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Types of messages (RFC 2132 section 9.6).
pub const DISCOVER: u8 = 1;
pub const OFFER: u8 = 2;
pub const REQUEST: u8 = 3;
pub const DECLINE: u8 = 4;
pub const ACK: u8 = 5;
pub const NAK: u8 = 6;
pub const RELEASE: u8 = 7;

const MESSAGE: usize = ethernet::LEN + ipv4::LEN + udp::LEN;
const OPTIONS: usize = 240;

/// A message of a DHCP client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DhcpRequest {
    pub kind: u8,
    pub mac: Mac,
    pub xid: u32,
    /// Of the frame.
    pub from: Mac,
    /// The address that it has, and the one it asks for.
    pub has: Option<Ipv4Addr>,
    pub wants: Option<Ipv4Addr>,
}

impl DhcpRequest {
    /// A frame, if it is a client's.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let header = Ethernet::parse(frame)?;
        let message = frame.get(MESSAGE..)?;
        if header.kind != ethernet::kind::IPV4 || frame.get(36..38)? != [0, 67] || message.len() < OPTIONS {
            return None;
        }
        let number = |at: usize| Some(u32::from_be_bytes(*message.get(at..)?.first_chunk()?));
        let option = |code: u8| {
            let mut at = OPTIONS;
            while let [found, length, rest @ ..] = message.get(at..)?
                && *found != 255
            {
                if *found == code {
                    return rest.get(..usize::from(*length));
                }
                at += 2 + usize::from(*length);
            }
            None
        };
        let address = |address: u32| (address > 0).then(|| Ipv4Addr::from_bits(address));
        Some(Self {
            kind: *option(53)?.first()?,
            mac: *message.get(28..)?.first_chunk()?,
            xid: number(4)?,
            from: header.source,
            has: address(number(12)?),
            wants: option(50).and_then(|bytes| bytes.first_chunk::<4>()).map(|bytes| (*bytes).into()),
        })
    }
}

/// A server, and whom it gave which address.
#[derive(Debug)]
pub struct Server {
    pub mac: Mac,
    pub address: Ipv4Addr,
    /// For how long, s.
    pub lease: u32,
    pub leases: BTreeMap<Mac, Ipv4Addr>,
    /// What it heard.
    pub heard: Vec<DhcpRequest>,
    /// It is down.
    pub silent: bool,
    /// Its answers go to the client's own address, as one of a kernel's.
    pub unicast: bool,
    next: u32,
}

impl Server {
    /// It gives addresses from `first` on.
    pub fn new(mac: Mac, address: Ipv4Addr, first: Ipv4Addr, lease: u32) -> Self {
        Self {
            mac,
            address,
            lease,
            leases: BTreeMap::new(),
            heard: Vec::new(),
            silent: false,
            unicast: false,
            next: first.to_bits(),
        }
    }

    /// Hear a frame; the answer to it, if it is a client's.
    pub fn handle_frame(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let heard = DhcpRequest::of(frame).filter(|_| !self.silent)?;
        self.heard.push(heard);
        let next = self.next;
        match heard.kind {
            DISCOVER | REQUEST => {
                let free = |address: &Ipv4Addr| !self.leases.values().any(|taken| taken == address);
                let has = self.leases.get(&heard.mac).copied();
                let its = has.or_else(|| heard.wants.filter(free)).unwrap_or(Ipv4Addr::from_bits(next));
                self.next += u32::from(its.to_bits() == next);
                if heard.kind == DISCOVER {
                    return Some(self.answer(OFFER, &heard, its));
                }
                if heard.has.or(heard.wants) != Some(its) {
                    return Some(self.answer(NAK, &heard, Ipv4Addr::UNSPECIFIED));
                }
                self.leases.insert(heard.mac, its);
                Some(self.answer(ACK, &heard, its))
            }
            RELEASE | DECLINE => {
                self.leases.remove(&heard.mac);
                None
            }
            _ => None,
        }
    }

    /// A message to a client.
    pub fn answer(&self, kind: u8, to: &DhcpRequest, address: Ipv4Addr) -> Vec<u8> {
        let mut message = vec![0; OPTIONS];
        message[..4].copy_from_slice(&[2, 1, 6, 0]);
        message[4..8].copy_from_slice(&to.xid.to_be_bytes());
        message[16..20].copy_from_slice(&address.octets());
        message[28..34].copy_from_slice(&to.mac);
        message[236..240].copy_from_slice(&[99, 130, 83, 99]);
        message.extend([53, 1, kind, 54, 4]);
        message.extend(self.address.octets());
        message.extend([51, 4]);
        message.extend(self.lease.to_be_bytes());
        message.extend([1, 4, 255, 255, 255, 0, 255]);
        let (destination, ip) = if self.unicast && kind != NAK {
            (to.mac, address)
        } else {
            (ethernet::BROADCAST, Ipv4Addr::BROADCAST)
        };
        let length = (udp::LEN + message.len()) as u16;
        let mut frame = vec![0; MESSAGE];
        let header = Ethernet { destination, source: self.mac, kind: ethernet::kind::IPV4 };
        header.emit_tagged(&mut frame, &Tags::NONE, ipv4::LEN + udp::LEN);
        let head =
            Ipv4 { source: self.address, destination: ip, protocol: 17, ttl: 64, dscp: 0, payload: length };
        head.emit((&mut frame[ethernet::LEN..ethernet::LEN + ipv4::LEN]).try_into().expect("a header"));
        let [high, low] = length.to_be_bytes();
        frame[34..40].copy_from_slice(&[0, 67, 0, 68, high, low]);
        frame.extend(message);
        let sum = pseudo_header(&frame[26..34], 17, u32::from(length));
        let sum = sum.plus(Sum::ZERO.bytes(&frame[34..])).checksum();
        frame[40..42].copy_from_slice(&sum.to_be_bytes());
        frame
    }
}
