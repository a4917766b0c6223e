//! Properties of MQTT 5.0 packets (§2.2.2): which there are, where they may be, how they are written.

use super::field::{
    AUTH, CONNACK, CONNECT, DISCONNECT, MalformedPacket, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, Reader,
    SUBACK, SUBSCRIBE, WILL, datum, variable,
};
use super::version::Version;

type Result<T> = std::result::Result<T, MalformedPacket>;

/// Session Expiry Interval.
pub const SESSION_EXPIRY: u8 = 0x11;
/// Assigned Client Identifier.
pub const ASSIGNED_CLIENT_ID: u8 = 0x12;
/// Server Keep Alive.
pub const SERVER_KEEP_ALIVE: u8 = 0x13;
/// Server Reference.
pub const SERVER_REFERENCE: u8 = 0x1c;
/// Reason String.
pub const REASON_STRING: u8 = 0x1f;
/// Receive Maximum.
pub const RECEIVE_MAXIMUM: u8 = 0x21;
/// Topic Alias.
pub const TOPIC_ALIAS: u8 = 0x23;
/// Maximum QoS.
pub const MAXIMUM_QOS: u8 = 0x24;
/// Retain Available.
pub const RETAIN_AVAILABLE: u8 = 0x25;
/// User Property.
pub const USER: u8 = 0x26;
/// Maximum Packet Size.
pub const MAXIMUM_PACKET_SIZE: u8 = 0x27;

/// Properties of a 5.0 packet, checked; empty in 3.1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Properties<'a>(&'a [u8]);

/// The value of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// One, two or four bytes, or a variable byte integer.
    Number(u32),
    /// UTF-8.
    Text(&'a str),
    /// Anything.
    Data(&'a [u8]),
    /// Name and value.
    Pair(&'a str, &'a str),
}

/// How a property is written.
pub(super) enum PropertyType {
    Flag,
    Byte,
    Two,
    Four,
    Variable,
    Text,
    Data,
    Pair,
}

/// §2.2.2.2, table 2-4: how each property is written, and a bit for each packet type it may be in.
pub(super) fn property_type(id: u8) -> Option<(PropertyType, u16)> {
    const fn bits(types: &[u8]) -> u16 {
        let (mut bits, mut i) = (0, 0);
        while i < types.len() {
            bits |= 1 << types[i];
            i += 1;
        }
        bits
    }
    const MESSAGE: u16 = bits(&[PUBLISH, WILL]);
    const OPEN: u16 = bits(&[CONNECT, CONNACK]);
    const SAID: u16 = bits(&[CONNACK]);
    Some(match id {
        0x01 => (PropertyType::Flag, MESSAGE),
        0x02 => (PropertyType::Four, MESSAGE),
        0x03 | 0x08 => (PropertyType::Text, MESSAGE),
        0x09 => (PropertyType::Data, MESSAGE),
        0x0b => (PropertyType::Variable, bits(&[PUBLISH, SUBSCRIBE])),
        0x11 => (PropertyType::Four, bits(&[CONNECT, CONNACK, DISCONNECT])),
        0x12 => (PropertyType::Text, SAID),
        0x13 => (PropertyType::Two, SAID),
        0x15 => (PropertyType::Text, bits(&[CONNECT, CONNACK, AUTH])),
        0x16 => (PropertyType::Data, bits(&[CONNECT, CONNACK, AUTH])),
        0x17 | 0x19 => (PropertyType::Flag, bits(&[CONNECT])),
        0x18 => (PropertyType::Four, bits(&[WILL])),
        0x1a => (PropertyType::Text, SAID),
        0x1c => (PropertyType::Text, bits(&[CONNACK, DISCONNECT])),
        0x1f => {
            let said = [CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, DISCONNECT, AUTH];
            (PropertyType::Text, bits(&said))
        }
        0x21 | 0x22 => (PropertyType::Two, OPEN),
        0x23 => (PropertyType::Two, bits(&[PUBLISH])),
        0x24 => (PropertyType::Byte, SAID),
        0x25 | 0x28..=0x2a => (PropertyType::Flag, SAID),
        0x26 => (PropertyType::Pair, u16::MAX),
        0x27 => (PropertyType::Four, OPEN),
        _ => return None,
    })
}

impl<'a> Properties<'a> {
    /// Each property with its identifier.
    pub fn iter(self) -> impl Iterator<Item = (u8, Value<'a>)> {
        let mut rest = Reader::new(self.0, "properties");
        std::iter::from_fn(move || property(&mut rest).ok().map(|(id, value, _)| (id, value)))
    }

    /// The number that property `id` has.
    pub fn number(self, id: u8) -> Option<u32> {
        self.iter().find_map(|(found, value)| match value {
            Value::Number(number) if found == id => Some(number),
            _ => None,
        })
    }

    /// The text that property `id` has.
    pub fn text(self, id: u8) -> Option<&'a str> {
        self.iter().find_map(|(found, value)| match value {
            Value::Text(text) if found == id => Some(text),
            _ => None,
        })
    }

    /// The same in 5.0, nothing in 3.1.1.
    pub fn only_in(self, version: Version) -> Self {
        if version == Version::V5 { self } else { Self::default() }
    }

    /// Whether the number of bytes is zero.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Read those of a packet of type `packet`.
    pub(super) fn read(version: Version, packet: u8, rest: &mut Reader<'a>) -> Result<Self> {
        if version == Version::V311 {
            return Ok(Self::default());
        }
        let len = rest.variable()?;
        Self(rest.take(len as usize)?).check(packet)
    }

    /// Write them, where the version has any.
    pub(super) fn emit(self, version: Version, out: &mut Vec<u8>) {
        if version == Version::V5 {
            variable(out, self.0.len());
            out.extend_from_slice(self.0);
        }
    }

    fn check(self, packet: u8) -> Result<Self> {
        let mut rest = Reader::new(self.0, "properties");
        let mut seen = 0u64;
        while !rest.is_empty() {
            let (id, value, places) = property(&mut rest)?;
            let number = if let Value::Number(number) = value { number } else { 1 };
            let again = seen >> id & 1 == 1 && id != USER && !(id == 0x0b && packet == PUBLISH);
            let zero = matches!(id, 0x0b | 0x21 | 0x23 | 0x27) && number == 0;
            let large = id == MAXIMUM_QOS && number > 1;
            if places >> packet & 1 == 0 || again || zero || large {
                return Err(MalformedPacket::Property(id));
            }
            seen |= 1 << id;
        }
        Ok(self)
    }
}

/// One property, and where it may be.
fn property<'a>(rest: &mut Reader<'a>) -> Result<(u8, Value<'a>, u16)> {
    let id = rest.u8()?;
    let (kind, places) = property_type(id).ok_or(MalformedPacket::Property(id))?;
    let value = match kind {
        PropertyType::Flag => match rest.u8()? {
            flag @ 0..=1 => Value::Number(u32::from(flag)),
            _ => return Err(MalformedPacket::Property(id)),
        },
        PropertyType::Byte => Value::Number(u32::from(rest.u8()?)),
        PropertyType::Two => Value::Number(u32::from(rest.u16()?)),
        PropertyType::Four => Value::Number(rest.u32()?),
        PropertyType::Variable => Value::Number(rest.variable()?),
        PropertyType::Text => Value::Text(rest.text()?),
        PropertyType::Data => Value::Data(rest.data()?),
        PropertyType::Pair => Value::Pair(rest.text()?, rest.text()?),
    };
    Ok((id, value, places))
}

/// Append one property.
pub fn put(out: &mut Vec<u8>, id: u8, value: Value<'_>) {
    out.push(id);
    match (value, property_type(id)) {
        (Value::Number(n), Some((PropertyType::Flag | PropertyType::Byte, _))) => out.push(n as u8),
        (Value::Number(n), Some((PropertyType::Two, _))) => out.extend_from_slice(&(n as u16).to_be_bytes()),
        (Value::Number(n), Some((PropertyType::Variable, _))) => variable(out, n as usize),
        (Value::Number(n), _) => out.extend_from_slice(&n.to_be_bytes()),
        (Value::Text(text), _) => datum(out, text.as_bytes()),
        (Value::Data(data), _) => datum(out, data),
        (Value::Pair(name, value), _) => {
            datum(out, name.as_bytes());
            datum(out, value.as_bytes());
        }
    }
}

/// Properties as [`put`] wrote them.
pub fn written(bytes: &[u8]) -> Properties<'_> {
    Properties(bytes)
}
