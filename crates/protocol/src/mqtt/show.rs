//! Packets and codes as text, for logs and tests.

use super::Version;
use super::property::{Properties, Value};
use super::wire::{Ack, Packet};
use std::fmt;

/// What a code means, where it says no.
pub(super) fn meaning(version: Version, code: u8) -> &'static str {
    match (version, code) {
        // 3.1.1 §3.2.2.3
        (Version::V311, 1 | 0x84) => "protocol version refused: the broker does not speak 3.1.1, try \"5.0\"",
        (Version::V5, 1 | 0x84) => "protocol version refused: the broker does not speak 5.0, try \"3.1.1\"",
        (Version::V311, 2) => "identifier rejected",
        (Version::V311, 3) => "server unavailable",
        (Version::V311, 4) => "bad user name or password",
        (Version::V311, 5) => "not authorized",
        // 3.1.1 §3.9.3
        (Version::V311, 0x80) => "failure",
        // 5.0 §2.4, table 2-6
        (_, 0x00) => "normal disconnection",
        (_, 0x80) => "unspecified error",
        (_, 0x81) => "malformed packet",
        (_, 0x82) => "protocol error",
        (_, 0x83) => "implementation specific error",
        (_, 0x85) => "client identifier not valid",
        (_, 0x86) => "bad user name or password",
        (_, 0x87) => "not authorized",
        (_, 0x88) => "server unavailable",
        (_, 0x89) => "server busy",
        (_, 0x8a) => "banned",
        (_, 0x8b) => "server shutting down",
        (_, 0x8c) => "bad authentication method",
        (_, 0x8d) => "keep alive timeout",
        (_, 0x8e) => "session taken over",
        (_, 0x8f) => "topic filter invalid",
        (_, 0x90) => "topic name invalid",
        (_, 0x91) => "packet identifier in use",
        (_, 0x92) => "packet identifier not found",
        (_, 0x93) => "receive maximum exceeded",
        (_, 0x94) => "topic alias invalid",
        (_, 0x95) => "packet too large",
        (_, 0x96) => "message rate too high",
        (_, 0x97) => "quota exceeded",
        (_, 0x98) => "administrative action",
        (_, 0x99) => "payload format invalid",
        (_, 0x9a) => "retain not supported",
        (_, 0x9b) => "QoS not supported",
        (_, 0x9c) => "use another server",
        (_, 0x9d) => "server moved",
        (_, 0x9e) => "shared subscriptions not supported",
        (_, 0x9f) => "connection rate exceeded",
        (_, 0xa0) => "maximum connect time",
        (_, 0xa1) => "subscription identifiers not supported",
        (_, 0xa2) => "wildcard subscriptions not supported",
        _ => "refused",
    }
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ack = |f: &mut fmt::Formatter<'_>, name: &str, ack: &Ack<'_>| {
            write!(f, "{name} #{}{}", ack.id, ReasonText(ack.code, ack.properties))
        };
        match self {
            Packet::Connect(c) => {
                write!(
                    f,
                    "CONNECT {:?} keep={}{}",
                    c.client_id,
                    c.keep_alive,
                    if c.clean { " clean" } else { "" }
                )?;
                if let Some(will) = c.will {
                    write!(f, " will={} q{}", will.topic, will.qos)?;
                }
                if let Some(username) = c.username {
                    write!(f, " user={username}")?;
                }
                write!(f, "{}", ReasonText(0, c.properties))
            }
            Packet::ConnAck { session_present, code, properties } => {
                let session = if *session_present { " session" } else { "" };
                write!(f, "CONNACK{session}{}", ReasonText(*code, *properties))
            }
            Packet::Publish(p) => {
                write!(f, "PUBLISH q{}", p.qos)?;
                if p.qos > 0 {
                    write!(f, " #{}", p.id)?;
                }
                f.write_str(if p.dup { " dup" } else { "" })?;
                f.write_str(if p.retain { " retain" } else { "" })?;
                write!(f, " {}{} {}", p.topic, ReasonText(0, p.properties), p.payload.escape_ascii())
            }
            Packet::PubAck(a) => ack(f, "PUBACK", a),
            Packet::PubRec(a) => ack(f, "PUBREC", a),
            Packet::PubRel(a) => ack(f, "PUBREL", a),
            Packet::PubComp(a) => ack(f, "PUBCOMP", a),
            Packet::Subscribe { id, properties, filters } => {
                write!(f, "SUBSCRIBE #{id}{}", ReasonText(0, *properties))?;
                filters.iter().try_for_each(|(filter, options)| write!(f, " {filter} q{}", options & 3))
            }
            Packet::SubAck { id, properties, codes } => {
                write!(f, "SUBACK #{id}{} {codes:x?}", ReasonText(0, *properties))
            }
            Packet::PingReq => f.write_str("PINGREQ"),
            Packet::PingResp => f.write_str("PINGRESP"),
            Packet::Disconnect { code, properties } => {
                write!(f, "DISCONNECT{}", ReasonText(*code, *properties))
            }
            Packet::Auth { code, properties } => write!(f, "AUTH{}", ReasonText(*code, *properties)),
        }
    }
}

/// Code and properties, where there is something to show.
struct ReasonText<'a>(u8, Properties<'a>);

impl fmt::Display for ReasonText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 != 0 {
            write!(f, " code={:#04x}", self.0)?;
        }
        self.1.iter().try_for_each(|(id, value)| match value {
            Value::Number(n) => write!(f, " {id:#04x}={n}"),
            Value::Text(text) => write!(f, " {id:#04x}={text:?}"),
            Value::Data(data) => write!(f, " {id:#04x}={data:x?}"),
            Value::Pair(name, value) => write!(f, " {name:?}={value:?}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_code_of_the_standard_has_a_name_of_its_own() {
        // MQTT 5.0 table 2-6: 0x80 to 0xa2
        let mut names: Vec<&str> = (0x80..=0xa2).map(|code| meaning(Version::V5, code)).collect();
        assert!(!names.contains(&"refused"));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 35);
        assert_eq!(meaning(Version::V5, 0xa3), "refused");
        assert_eq!(meaning(Version::V5, 0x9d), "server moved");
        assert_eq!(meaning(Version::V311, 0x80), "failure");
    }
}
