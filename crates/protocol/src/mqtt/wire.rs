//! MQTT control packets on the wire, 3.1.1 and 5.0: read in place, written, shown as text.
//!
//! Section numbers are those of OASIS MQTT 5.0; 3.1.1 has the same ones unless said otherwise.

pub use super::field::MalformedPacket;
use super::field::{
    AUTH, CONNACK, CONNECT, DISCONNECT, PINGREQ, PINGRESP, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL,
    REMAINING_MAX, Reader, SUBACK, SUBSCRIBE, WILL, datum,
};
use super::property::Properties;
use super::version::Version;

type Result<T> = std::result::Result<T, MalformedPacket>;

/// One packet as framed by its fixed header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Type and flags.
    pub first: u8,
    /// What follows the fixed header.
    pub body: &'a [u8],
    /// Bytes it takes with its fixed header.
    pub len: usize,
}

/// Find the first packet. `None`: not all of it is here.
#[inline]
pub fn frame(bytes: &[u8], limit: usize) -> Result<Option<Frame<'_>>> {
    let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
    let (mut remaining, mut width) = (0usize, 0);
    loop {
        let Some(&byte) = rest.get(width) else { return Ok(None) };
        remaining |= usize::from(byte & 127) << (7 * width);
        width += 1;
        if byte < 128 {
            break;
        }
        if width == 4 {
            return Err(MalformedPacket::Length);
        }
    }
    let len = 1 + width + remaining;
    if len > limit {
        return Err(MalformedPacket::TooLarge(len));
    }
    Ok(rest.get(width..width + remaining).map(|body| Frame { first, body, len }))
}

/// CONNECT (§3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Connect<'a> {
    /// Clean session (3.1.1) or clean start (5.0).
    pub clean: bool,
    /// Seconds.
    pub keep_alive: u16,
    /// Properties.
    pub properties: Properties<'a>,
    /// Client identifier.
    pub client_id: &'a str,
    /// What to publish when the client is lost.
    pub will: Option<Will<'a>>,
    /// User name.
    pub username: Option<&'a str>,
    /// Password.
    pub password: Option<&'a [u8]>,
}

/// The will in a CONNECT (§3.1.2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Will<'a> {
    /// Properties.
    pub properties: Properties<'a>,
    /// Topic.
    pub topic: &'a str,
    /// Payload.
    pub payload: &'a [u8],
    /// Quality of service.
    pub qos: u8,
    /// Whether it is kept.
    pub retain: bool,
}

/// PUBLISH (§3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Publish<'a> {
    /// Sent before.
    pub dup: bool,
    /// Quality of service.
    pub qos: u8,
    /// Kept by the broker.
    pub retain: bool,
    /// Topic.
    pub topic: &'a str,
    /// Packet identifier; 0 with QoS 0.
    pub id: u16,
    /// Properties.
    pub properties: Properties<'a>,
    /// Payload.
    pub payload: &'a [u8],
}

/// PUBACK, PUBREC, PUBREL, PUBCOMP (§3.4–3.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ack<'a> {
    /// Packet identifier.
    pub id: u16,
    /// Reason code; 0 in 3.1.1.
    pub code: u8,
    /// Properties.
    pub properties: Properties<'a>,
}

/// The filters of a SUBSCRIBE, as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filters<'a>(&'a [u8]);

impl<'a> Filters<'a> {
    /// Each filter with its options (the low two bits are the QoS).
    pub fn iter(self) -> impl Iterator<Item = (&'a str, u8)> {
        let mut rest = Reader::new(self.0, "SUBSCRIBE");
        std::iter::from_fn(move || Some((rest.text().ok()?, rest.u8().ok()?)))
    }
}

/// A control packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    /// §3.1
    Connect(Connect<'a>),
    /// §3.2
    ConnAck {
        /// The broker remembers this client.
        session_present: bool,
        /// Return code (3.1.1) or reason code (5.0); 0 is welcome.
        code: u8,
        /// Properties.
        properties: Properties<'a>,
    },
    /// §3.3
    Publish(Publish<'a>),
    /// §3.4
    PubAck(Ack<'a>),
    /// §3.5
    PubRec(Ack<'a>),
    /// §3.6
    PubRel(Ack<'a>),
    /// §3.7
    PubComp(Ack<'a>),
    /// §3.8
    Subscribe {
        /// Packet identifier.
        id: u16,
        /// Properties.
        properties: Properties<'a>,
        /// What to subscribe to.
        filters: Filters<'a>,
    },
    /// §3.9
    SubAck {
        /// Packet identifier.
        id: u16,
        /// Properties.
        properties: Properties<'a>,
        /// Granted QoS, or 0x80 and above for no.
        codes: &'a [u8],
    },
    /// §3.12
    PingReq,
    /// §3.13
    PingResp,
    /// §3.14
    Disconnect {
        /// Reason code; 0 in 3.1.1.
        code: u8,
        /// Properties.
        properties: Properties<'a>,
    },
    /// §3.15, 5.0 only.
    Auth {
        /// Reason code.
        code: u8,
        /// Properties.
        properties: Properties<'a>,
    },
}

/// Read a framed packet.
#[inline]
pub fn parse<'a>(version: Version, frame: &Frame<'a>) -> Result<Packet<'a>> {
    let (kind, flags) = (frame.first >> 4, frame.first & 15);
    let body = |name| Reader::new(frame.body, name);
    // §2.1.3: all flags but those of PUBLISH are reserved
    let reserved = |name| {
        let wanted = if matches!(kind, PUBREL | SUBSCRIBE) { 2 } else { 0 };
        if flags == wanted { Ok(Reader::new(frame.body, name)) } else { Err(MalformedPacket::Flags(name)) }
    };
    match kind {
        CONNECT => connect(version, reserved("CONNECT")?),
        CONNACK => {
            let mut rest = reserved("CONNACK")?;
            let (acknowledge, code) = (rest.u8()?, rest.u8()?);
            // §3.2.2.1: bits 7–1 are reserved, and only a welcome has a session
            if acknowledge > 1 || (acknowledge == 1 && code != 0) {
                return Err(MalformedPacket::Flags("CONNACK"));
            }
            // a broker of the other version refuses in its own way: 3.1.1 §3.2.2.3, and 5.0 §3.2.2.2
            let refused = if version == Version::V311 { code == 0x84 } else { code == 1 };
            if refused {
                let properties = Properties::default();
                return Ok(Packet::ConnAck { session_present: false, code, properties });
            }
            let known = if version == Version::V311 { code <= 5 } else { code == 0 || code >= 0x80 };
            if !known {
                return Err(MalformedPacket::Code(code, "CONNACK"));
            }
            let properties = Properties::read(version, CONNACK, &mut rest)?;
            rest.end(Packet::ConnAck { session_present: acknowledge == 1, code, properties })
        }
        PUBLISH => publish(version, flags, body("PUBLISH")),
        PUBACK => Ok(Packet::PubAck(ack(version, PUBACK, reserved("PUBACK")?)?)),
        PUBREC => Ok(Packet::PubRec(ack(version, PUBREC, reserved("PUBREC")?)?)),
        PUBREL => Ok(Packet::PubRel(ack(version, PUBREL, reserved("PUBREL")?)?)),
        PUBCOMP => Ok(Packet::PubComp(ack(version, PUBCOMP, reserved("PUBCOMP")?)?)),
        SUBSCRIBE => {
            let mut rest = reserved("SUBSCRIBE")?;
            let id = rest.id()?;
            let properties = Properties::read(version, SUBSCRIBE, &mut rest)?;
            let filters = Filters(rest.rest());
            // §3.8.3: at least one filter
            loop {
                rest.text()?;
                if rest.u8()? & 3 == 3 {
                    return Err(MalformedPacket::Qos);
                }
                if rest.is_empty() {
                    return Ok(Packet::Subscribe { id, properties, filters });
                }
            }
        }
        SUBACK => {
            let mut rest = reserved("SUBACK")?;
            let id = rest.id()?;
            let properties = Properties::read(version, SUBACK, &mut rest)?;
            // §3.9.3; 3.1.1 knows only one way to say no
            let known = |code: &u8| *code <= 2 || *code == 0x80 || (version == Version::V5 && *code > 0x80);
            match rest.rest().iter().find(|code| !known(code)) {
                Some(code) => Err(MalformedPacket::Code(*code, "SUBACK")),
                None if rest.is_empty() => Err(MalformedPacket::Size("SUBACK")),
                None => Ok(Packet::SubAck { id, properties, codes: rest.rest() }),
            }
        }
        PINGREQ => reserved("PINGREQ")?.end(Packet::PingReq),
        PINGRESP => reserved("PINGRESP")?.end(Packet::PingResp),
        DISCONNECT => {
            let (code, properties) = reason(version, DISCONNECT, reserved("DISCONNECT")?)?;
            Ok(Packet::Disconnect { code, properties })
        }
        AUTH if version == Version::V5 => {
            let (code, properties) = reason(version, AUTH, reserved("AUTH")?)?;
            Ok(Packet::Auth { code, properties })
        }
        _ => Err(MalformedPacket::Type(kind)),
    }
}

fn connect(version: Version, mut rest: Reader<'_>) -> Result<Packet<'_>> {
    if rest.text()? != "MQTT" || rest.u8()? != version.level() {
        return Err(MalformedPacket::Protocol);
    }
    let flags = rest.u8()?;
    let flag = |bit: u8| flags >> bit & 1 == 1;
    let qos = flags >> 3 & 3;
    // §3.1.2.3 and following: the reserved bit, and will bits without a will
    let stray = !flag(2) && (qos != 0 || flag(5));
    // 3.1.1 §3.1.2.9: no password without a user name
    let lonely = version == Version::V311 && flag(6) && !flag(7);
    if flag(0) || stray || lonely || qos == 3 {
        return Err(MalformedPacket::Flags("CONNECT"));
    }
    let keep_alive = rest.u16()?;
    let properties = Properties::read(version, CONNECT, &mut rest)?;
    let client_id = rest.text()?;
    let will = if flag(2) {
        let properties = Properties::read(version, WILL, &mut rest)?;
        Some(Will { properties, topic: rest.text()?, payload: rest.data()?, qos, retain: flag(5) })
    } else {
        None
    };
    let username = if flag(7) { Some(rest.text()?) } else { None };
    let password = if flag(6) { Some(rest.data()?) } else { None };
    rest.end(Packet::Connect(Connect {
        clean: flag(1),
        keep_alive,
        properties,
        client_id,
        will,
        username,
        password,
    }))
}

fn publish(version: Version, flags: u8, mut rest: Reader<'_>) -> Result<Packet<'_>> {
    let (dup, qos, retain) = (flags & 8 != 0, flags >> 1 & 3, flags & 1 != 0);
    if qos == 3 {
        return Err(MalformedPacket::Qos);
    }
    // §3.3.1.1: DUP is 0 with QoS 0
    if dup && qos == 0 {
        return Err(MalformedPacket::Flags("PUBLISH"));
    }
    let topic = rest.text()?;
    if topic.is_empty() || topic.contains(['+', '#']) {
        return Err(MalformedPacket::Topic);
    }
    let id = if qos > 0 { rest.id()? } else { 0 };
    let properties = Properties::read(version, PUBLISH, &mut rest)?;
    Ok(Packet::Publish(Publish { dup, qos, retain, topic, id, properties, payload: rest.rest() }))
}

/// The code and properties that may be left out at the end (§3.4.2.1).
fn reason(version: Version, packet: u8, mut rest: Reader<'_>) -> Result<(u8, Properties<'_>)> {
    if rest.is_empty() || version == Version::V311 {
        return rest.end((0, Properties::default()));
    }
    let code = rest.u8()?;
    let left_out = rest.is_empty();
    let properties =
        if left_out { Properties::default() } else { Properties::read(version, packet, &mut rest)? };
    rest.end((code, properties))
}

fn ack(version: Version, packet: u8, mut rest: Reader<'_>) -> Result<Ack<'_>> {
    let id = rest.id()?;
    let (code, properties) = reason(version, packet, rest)?;
    Ok(Ack { id, code, properties })
}

/// Begin a packet: its first byte and room for one byte of length. Returns what [`end`] needs.
#[inline]
pub fn begin(out: &mut Vec<u8>, first: u8) -> usize {
    out.extend_from_slice(&[first, 0]);
    out.len()
}

/// End the packet: write its length, making room for it if one byte is not enough.
#[inline]
pub fn end(out: &mut Vec<u8>, start: usize) {
    let len = out.len() - start;
    if len < 128 {
        out[start - 1] = len as u8;
        return;
    }
    let mut digits = [0; 4];
    let (mut left, mut width) = (len.min(REMAINING_MAX), 0);
    while left > 0 {
        digits[width] = (left & 127) as u8 | 128;
        left >>= 7;
        width += 1;
    }
    digits[width - 1] &= 127;
    out.resize(out.len() + width - 1, 0);
    out.copy_within(start..start + len, start + width - 1);
    out[start - 1..start - 1 + width].copy_from_slice(&digits[..width]);
}

/// Append one filter of a SUBSCRIBE.
pub fn put_filter(out: &mut Vec<u8>, filter: &[u8], qos: u8) {
    datum(out, filter);
    out.push(qos);
}

/// Filters as [`put_filter`] wrote them.
pub fn filters(bytes: &[u8]) -> Filters<'_> {
    Filters(bytes)
}

impl Packet<'_> {
    /// Append the packet to `out`.
    pub fn emit(&self, version: Version, out: &mut Vec<u8>) {
        match self {
            Packet::Connect(connect) => {
                let start = begin(out, CONNECT << 4);
                datum(out, b"MQTT");
                let will = connect.will.map_or(0, |w| 4 | w.qos << 3 | u8::from(w.retain) << 5);
                let names =
                    u8::from(connect.username.is_some()) << 7 | u8::from(connect.password.is_some()) << 6;
                out.extend_from_slice(&[version.level(), names | will | u8::from(connect.clean) << 1]);
                out.extend_from_slice(&connect.keep_alive.to_be_bytes());
                connect.properties.emit(version, out);
                datum(out, connect.client_id.as_bytes());
                if let Some(will) = connect.will {
                    will.properties.emit(version, out);
                    datum(out, will.topic.as_bytes());
                    datum(out, will.payload);
                }
                if let Some(username) = connect.username {
                    datum(out, username.as_bytes());
                }
                if let Some(password) = connect.password {
                    datum(out, password);
                }
                end(out, start);
            }
            Packet::ConnAck { session_present, code, properties } => {
                let start = begin(out, CONNACK << 4);
                out.extend_from_slice(&[u8::from(*session_present), *code]);
                properties.emit(version, out);
                end(out, start);
            }
            Packet::Publish(p) => {
                let start = begin(out, PUBLISH << 4 | u8::from(p.dup) << 3 | p.qos << 1 | u8::from(p.retain));
                datum(out, p.topic.as_bytes());
                if p.qos > 0 {
                    out.extend_from_slice(&p.id.to_be_bytes());
                }
                p.properties.emit(version, out);
                out.extend_from_slice(p.payload);
                end(out, start);
            }
            Packet::PubAck(ack) => ack.emit(PUBACK << 4, version, out),
            Packet::PubRec(ack) => ack.emit(PUBREC << 4, version, out),
            Packet::PubRel(ack) => ack.emit(PUBREL << 4 | 2, version, out),
            Packet::PubComp(ack) => ack.emit(PUBCOMP << 4, version, out),
            Packet::Subscribe { id, properties, filters } => {
                let start = begin(out, SUBSCRIBE << 4 | 2);
                out.extend_from_slice(&id.to_be_bytes());
                properties.emit(version, out);
                out.extend_from_slice(filters.0);
                end(out, start);
            }
            Packet::SubAck { id, properties, codes } => {
                let start = begin(out, SUBACK << 4);
                out.extend_from_slice(&id.to_be_bytes());
                properties.emit(version, out);
                out.extend_from_slice(codes);
                end(out, start);
            }
            Packet::PingReq => out.extend_from_slice(&[PINGREQ << 4, 0]),
            Packet::PingResp => out.extend_from_slice(&[PINGRESP << 4, 0]),
            Packet::Disconnect { code, properties } => {
                let start = begin(out, DISCONNECT << 4);
                put_reason(out, version, *code, *properties);
                end(out, start);
            }
            Packet::Auth { code, properties } => {
                let start = begin(out, AUTH << 4);
                put_reason(out, version, *code, *properties);
                end(out, start);
            }
        }
    }
}

fn put_reason(out: &mut Vec<u8>, version: Version, code: u8, properties: Properties<'_>) {
    if version == Version::V5 && (code != 0 || !properties.is_empty()) {
        out.push(code);
        properties.emit(version, out);
    }
}

impl Ack<'_> {
    /// The usual acknowledgement of `id`.
    pub fn of(id: u16) -> Self {
        Self { id, ..Self::default() }
    }

    fn emit(&self, first: u8, version: Version, out: &mut Vec<u8>) {
        let start = begin(out, first);
        out.extend_from_slice(&self.id.to_be_bytes());
        put_reason(out, version, self.code, self.properties);
        end(out, start);
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
