//! ARP for IPv4 over Ethernet (RFC 826).

use crate::bytes::take;
use crate::ethernet::Mac;
use crate::ethernet::{self, BROADCAST, Ethernet, Tags, kind};
use std::net::Ipv4Addr;

/// Bytes in a message.
pub const LEN: usize = 28;
/// Bytes in a frame with an ARP message, without tags and padding.
pub const FRAME: usize = ethernet::LEN + LEN;

/// Hardware Ethernet, protocol IPv4, lengths 6 and 4.
const FIXED: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// Request or reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// ARP request.
    Request,
    /// The sender has it.
    Reply,
}

/// An ARP message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arp {
    /// Question or answer.
    pub operation: Operation,
    /// Sender hardware address.
    pub sender_mac: Mac,
    /// Sender protocol address.
    pub sender: Ipv4Addr,
    /// Target hardware address; zero in a request.
    pub target_mac: Mac,
    /// Target protocol address.
    pub target: Ipv4Addr,
}

impl Arp {
    /// The message in `frame`, behind up to two tags; `None` when it is no ARP for IPv4 over Ethernet.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (kind::ARP, at) = ethernet::payload(frame)? else { return None };
        let bytes: &[u8; LEN] = take(frame, at)?;
        let operation = match bytes[6..8] {
            [0, 1] => Operation::Request,
            [0, 2] => Operation::Reply,
            _ => return None,
        };
        if bytes[..6] != FIXED {
            return None;
        }
        let ip = |at: usize| take::<4>(bytes, at).map(|ip| Ipv4Addr::from(*ip));
        Some(Self {
            operation,
            sender_mac: *take(bytes, 8)?,
            sender: ip(14)?,
            target_mac: *take(bytes, 18)?,
            target: ip(24)?,
        })
    }

    /// A request for `target` by the holder of `sender`.
    pub fn request(sender_mac: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Self {
        Self { operation: Operation::Request, sender_mac, sender, target_mac: [0; 6], target }
    }

    /// The answer to this message by the holder of `mac`.
    pub fn answer(&self, mac: Mac) -> Self {
        Self {
            operation: Operation::Reply,
            sender_mac: mac,
            sender: self.target,
            target_mac: self.sender_mac,
            target: self.sender,
        }
    }

    /// An announcement of `ip` (RFC 5227 section 3).
    pub fn announcement(mac: Mac, ip: Ipv4Addr) -> Self {
        Self::request(mac, ip, ip)
    }

    /// Write the whole frame: a question to everybody, an answer to whom it is for.
    pub fn emit(&self, out: &mut [u8; FRAME]) {
        self.emit_tagged(out, &Tags::NONE);
    }

    /// Write the whole frame with these tags; its length. `None`, and nothing changed, when it does not fit.
    pub fn emit_tagged(&self, out: &mut [u8], tags: &Tags) -> Option<usize> {
        let (destination, operation) = match self.operation {
            Operation::Request => (BROADCAST, 1),
            Operation::Reply => (self.target_mac, 2),
        };
        let header = Ethernet { destination, source: self.sender_mac, kind: kind::ARP };
        let message: &mut [u8; LEN] = header.emit_tagged(out, tags, LEN)?.first_chunk_mut()?;
        message[..6].copy_from_slice(&FIXED);
        message[6..8].copy_from_slice(&[0, operation]);
        message[8..14].copy_from_slice(&self.sender_mac);
        message[14..18].copy_from_slice(&self.sender.octets());
        message[18..24].copy_from_slice(&self.target_mac);
        message[24..28].copy_from_slice(&self.target.octets());
        Some(FRAME + tags.bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_and_its_answer() {
        let (mine, yours) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let ask = Arp::request(mine, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut frame = [0; FRAME];
        ask.emit(&mut frame);
        #[rustfmt::skip]
        assert_eq!(frame, [
            255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 8, 6,
            0, 1, 8, 0, 6, 4, 0, 1,
            2, 0, 0, 0, 0, 1, 10, 0, 0, 1,
            0, 0, 0, 0, 0, 0, 10, 0, 0, 2,
        ]);
        assert_eq!(Arp::parse(&frame), Some(ask));
        let answer = ask.answer(yours);
        answer.emit(&mut frame);
        assert_eq!(Arp::parse(&frame), Some(answer));
        assert_eq!((&frame[..6], answer.sender), (&mine[..], Ipv4Addr::new(10, 0, 0, 2)));
        for len in 0..FRAME {
            assert_eq!(Arp::parse(&frame[..len]), None);
        }
    }

    #[test]
    fn tags_come_before_it() {
        let say = Arp::announcement([2; 6], Ipv4Addr::new(10, 0, 0, 1));
        let tags = Tags::vlans(&[100, 7]).unwrap();
        let mut frame = [0; 60];
        assert_eq!(say.emit_tagged(&mut frame, &tags), Some(FRAME + 8));
        assert_eq!((Arp::parse(&frame), Tags::of(&frame)), (Some(say), tags));
        assert_eq!(say.emit_tagged(&mut frame[..FRAME + 7], &tags), None);
    }
}
