//! The fields that packets are made of (§1.5), read and written.

/// Largest remaining length (§1.5.5): four bytes of seven bits.
pub const REMAINING_MAX: usize = 268_435_455;

/// What a packet breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MalformedPacket {
    /// Packet type 0, or one that this side never gets.
    #[error("packet type {0}")]
    Type(u8),
    /// Reserved bits of the fixed header (§2.1.3).
    #[error("reserved flag bits in {0}")]
    Flags(&'static str),
    /// A variable byte integer of more than four bytes (§1.5.5).
    #[error("malformed length")]
    Length,
    /// Larger than we take.
    #[error("packet of {0} bytes is over the limit")]
    TooLarge(usize),
    /// Ends in the middle of a field, or after the last.
    #[error("{0} is cut short or too long")]
    Size(&'static str),
    /// A string that is no UTF-8 or has a NUL in it (§1.5.4).
    #[error("malformed string")]
    Text,
    /// QoS 3.
    #[error("QoS 3")]
    Qos,
    /// Packet identifier 0 (§2.2.1).
    #[error("packet identifier 0")]
    Id,
    /// An empty topic name, or one with wildcards (§3.3.2.1).
    #[error("malformed topic name")]
    Topic,
    /// A reason or return code that does not exist.
    #[error("unknown code {0:#04x} in {1}")]
    Code(u8, &'static str),
    /// A property that does not exist or not here, that comes twice or has a forbidden value (§2.2.2).
    #[error("property {0:#04x} is not allowed here")]
    Property(u8),
    /// Not `MQTT`, or not our version.
    #[error("another protocol or version")]
    Protocol,
    /// Well formed, but not what can come now.
    #[error("{0} was not expected")]
    Unexpected(&'static str),
    /// An acknowledgement for nothing.
    #[error("{0} for packet {1}, which waits for none")]
    Unasked(&'static str, u16),
}

type Result<T> = std::result::Result<T, MalformedPacket>;

pub(super) const WILL: u8 = 0;
pub(super) const CONNECT: u8 = 1;
pub(super) const CONNACK: u8 = 2;
pub(super) const PUBLISH: u8 = 3;
pub(super) const PUBACK: u8 = 4;
pub(super) const PUBREC: u8 = 5;
pub(super) const PUBREL: u8 = 6;
pub(super) const PUBCOMP: u8 = 7;
pub(super) const SUBSCRIBE: u8 = 8;
pub(super) const SUBACK: u8 = 9;
pub(super) const PINGREQ: u8 = 12;
pub(super) const PINGRESP: u8 = 13;
pub(super) const DISCONNECT: u8 = 14;
pub(super) const AUTH: u8 = 15;

/// Fields taken one after the other from a body; remembers whose.
pub(super) struct Reader<'a>(&'a [u8], &'static str);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], name: &'static str) -> Self {
        Self(bytes, name)
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(MalformedPacket::Size(self.1))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from(self.u16()?) << 16 | u32::from(self.u16()?))
    }

    pub(super) fn id(&mut self) -> Result<u16> {
        match self.u16()? {
            0 => Err(MalformedPacket::Id),
            id => Ok(id),
        }
    }

    pub(super) fn variable(&mut self) -> Result<u32> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.u8()?;
            value |= u32::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(value);
            }
        }
        Err(MalformedPacket::Length)
    }

    pub(super) fn data(&mut self) -> Result<&'a [u8]> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    pub(super) fn text(&mut self) -> Result<&'a str> {
        let text = std::str::from_utf8(self.data()?).map_err(|_| MalformedPacket::Text)?;
        if memchr::memchr(0, text.as_bytes()).is_some() { Err(MalformedPacket::Text) } else { Ok(text) }
    }

    pub(super) fn end<T>(self, value: T) -> Result<T> {
        if self.0.is_empty() { Ok(value) } else { Err(MalformedPacket::Size(self.1)) }
    }
}

/// Append a string or binary datum with its length, which is checked to fit where parameters are read.
pub fn datum(out: &mut Vec<u8>, data: &[u8]) {
    let data = &data[..data.len().min(65_535)];
    out.extend_from_slice(&(data.len() as u16).to_be_bytes());
    out.extend_from_slice(data);
}

pub(super) fn variable(out: &mut Vec<u8>, mut value: usize) {
    while value >= 128 {
        out.push((value & 127) as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}
