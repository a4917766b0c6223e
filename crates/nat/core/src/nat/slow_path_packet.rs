//! A packet's way through the slow path, which may lead through the NAT twice.

use crate::headers::Headers;
use crate::key::Endpoint;

/// A packet on its way through the slow path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlowPathPacket {
    /// What it is now: a packet that goes back in is translated twice.
    pub headers: Headers,
    /// Whether this passage uses up a hop.
    pub hop: bool,
    pub now: u64,
}

/// The way of a packet whose source was translated and whose destination is an address of the pool (RFC 4787 REQ-9: its source is
/// the outside endpoint).
pub(crate) fn back_in(way: &SlowPathPacket, source: Endpoint, destination: Endpoint) -> SlowPathPacket {
    SlowPathPacket {
        headers: Headers { realm: 0, ..way.headers.between(source, destination) },
        hop: false,
        now: way.now,
    }
}

/// Bytes of an IP header and of what follows it, with all options.
const HEADERS: usize = 60 + 60;

/// The headers of a packet as it came: whoever sent it is told of that one, also when it is refused after it was translated.
#[derive(Debug)]
pub(crate) struct OriginalHeaders {
    bytes: [u8; HEADERS],
    at: usize,
    len: usize,
}

impl OriginalHeaders {
    /// Of a packet that is not translated yet.
    pub(crate) fn of(frame: &[u8], headers: &Headers) -> Self {
        let mut bytes = [0; HEADERS];
        let packet = frame.get(headers.l3.into()..headers.end.into()).unwrap_or(&[]);
        let len = packet.len().min(HEADERS);
        bytes[..len].copy_from_slice(&packet[..len]);
        Self { bytes, at: headers.l3.into(), len }
    }

    /// Make it that one again.
    pub(crate) fn put_back(&self, frame: &mut [u8]) {
        if let Some(headers) = frame.get_mut(self.at..self.at + self.len) {
            headers.copy_from_slice(&self.bytes[..self.len]);
        }
    }
}
