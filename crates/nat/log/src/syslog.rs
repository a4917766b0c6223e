//! Syslog messages (RFC 5424), all of an event in structured data.
//!
//! ```text
//! <134>1 2026-11-22T20:15:00.250Z cgn1 netdyno - session-create [nat@32473 instance="1" proto="6" in="10.0.0.7"
//!     inport="40000" out="192.0.2.1" outport="1024" dst="198.51.100.9" dstport="443" vlan="100"]
//! ```

use crate::event::{Endpoint, Event, EventKind, Mapping, Quota, Tags};
use std::fmt::{self, Write};

/// Severities of RFC 5424 section 6.2.1 that are used.
const WARNING: u8 = 4;
const INFORMATIONAL: u8 = 6;

/// Who says it, and as what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Facility, 0 to 23; 16 is local0.
    pub facility: u8,
    /// HOSTNAME.
    pub host: String,
    /// APP-NAME.
    pub app: String,
    /// PROCID; `-` for none.
    pub process: String,
    /// The operator's private enterprise number, for the name of the structured data. 32473 is the one for documentation
    /// (RFC 5612).
    pub enterprise: u32,
    /// The name of this NAT, any text.
    pub instance: String,
}

impl Default for Config {
    fn default() -> Self {
        let nothing = String::from("-");
        Self {
            facility: 16,
            host: nothing.clone(),
            app: "netdyno".into(),
            process: nothing,
            enterprise: 32473,
            instance: "1".into(),
        }
    }
}

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is no such facility.
    #[error("syslog has no facility {0}: 0 to 23")]
    Facility(u8),
    /// A field of the header cannot be that.
    #[error("'{value}' cannot be the syslog {field}: 1 to {max} printable ASCII characters without spaces")]
    Header {
        /// HOSTNAME, APP-NAME or PROCID.
        field: &'static str,
        /// What was given.
        value: String,
        /// The longest it can be.
        max: usize,
    },
    /// The instance would make messages too long.
    #[error("the instance's name has {0} bytes: at most 64")]
    Instance(usize),
}

/// Makes messages of events, one each.
#[derive(Debug)]
pub struct Formatter {
    config: Config,
    /// ` instance="…"`, escaped.
    instance: String,
    line: String,
}

impl Formatter {
    /// A formatter, or what is wrong.
    pub fn new(config: Config) -> Result<Self, Fault> {
        if config.facility > 23 {
            return Err(Fault::Facility(config.facility));
        }
        let fields = [
            ("HOSTNAME", &config.host, 255),
            ("APP-NAME", &config.app, 48),
            ("PROCID", &config.process, 128),
        ];
        for (field, value, max) in fields {
            if value.is_empty() || value.len() > max || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(Fault::Header { field, value: value.clone(), max });
            }
        }
        if config.instance.len() > 64 {
            return Err(Fault::Instance(config.instance.len()));
        }
        let instance = escaped(&config.instance);
        Ok(Self { config, instance, line: String::new() })
    }

    /// The message of an event.
    pub fn event(&mut self, event: &Event) -> &[u8] {
        let (severity, name) = kind(event.what);
        self.line.clear();
        // A String takes whatever is written to it.
        let _written = self.header(severity, event.at_ms, name).and_then(|()| self.event_data(event.what));
        self.line.push(']');
        self.line.as_bytes()
    }

    /// That `total` events were lost since the start, `new` of them since this was last said.
    pub fn lost(&mut self, at_ms: u64, new: u64, total: u64) -> &[u8] {
        self.line.clear();
        let _written = self
            .header(WARNING, at_ms, "events-lost")
            .and_then(|()| write!(self.line, " lost=\"{new}\" total=\"{total}\""));
        self.line.push(']');
        self.line.as_bytes()
    }

    fn header(&mut self, severity: u8, at_ms: u64, name: &str) -> fmt::Result {
        let Config { facility, host, app, process, enterprise, .. } = &self.config;
        let time = Timestamp(at_ms);
        let priority = u16::from(*facility) * 8 + u16::from(severity);
        write!(
            self.line,
            "<{priority}>1 {time} {host} {app} {process} {name} [nat@{enterprise} instance=\"{}\"",
            self.instance
        )
    }

    fn event_data(&mut self, what: EventKind) -> fmt::Result {
        match what {
            EventKind::SessionCreated(session) => {
                let crate::Session { inside, tags, outside, remote, protocol } = session;
                self.mapping(Mapping { inside, tags, outside, protocol })?;
                self.destination(remote)?;
                self.tags(tags)
            }
            EventKind::SessionDeleted(session, volume) | EventKind::SessionInterim(session, volume) => {
                let crate::Session { inside, tags, outside, remote, protocol } = session;
                let crate::Volume { packets_up, bytes_up, packets_down, bytes_down } = volume;
                self.mapping(Mapping { inside, tags, outside, protocol })?;
                self.destination(remote)?;
                write!(self.line, " pktsup=\"{packets_up}\" bytesup=\"{bytes_up}\"")?;
                write!(self.line, " pktsdown=\"{packets_down}\" bytesdown=\"{bytes_down}\"")?;
                self.tags(tags)
            }
            EventKind::MappingCreated(mapping) | EventKind::MappingDeleted(mapping) => {
                self.mapping(mapping)?;
                self.tags(mapping.tags)
            }
            EventKind::BlockAllocated(block) | EventKind::BlockReleased(block) => {
                let crate::Block { inside, tags, outside, first, last } = block;
                write!(self.line, " in=\"{inside}\" out=\"{outside}\" first=\"{first}\" last=\"{last}\"")?;
                self.tags(tags)
            }
            EventKind::AddressesExhausted { pool } => write!(self.line, " pool=\"{pool}\""),
            EventKind::PortsExhausted { outside, protocol } => {
                write!(self.line, " out=\"{outside}\" proto=\"{protocol}\"")
            }
            EventKind::QuotaExceeded(quota) => match quota {
                Quota::Sessions { limit } => write!(self.line, " quota=\"sessions\" limit=\"{limit}\""),
                Quota::Mappings { limit } => write!(self.line, " quota=\"mappings\" limit=\"{limit}\""),
                Quota::Subscribers { limit } => write!(self.line, " quota=\"subscribers\" limit=\"{limit}\""),
                Quota::PerSubscriber { limit, inside, tags } => {
                    write!(self.line, " quota=\"per-subscriber\" limit=\"{limit}\" in=\"{inside}\"")?;
                    self.tags(tags)
                }
                Quota::Fragments { limit, inside, tags } => {
                    write!(self.line, " quota=\"fragments\" limit=\"{limit}\" in=\"{inside}\"")?;
                    self.tags(tags)
                }
            },
        }
    }

    fn mapping(&mut self, mapping: Mapping) -> fmt::Result {
        let Mapping { inside, outside, protocol, .. } = mapping;
        write!(self.line, " proto=\"{protocol}\" in=\"{}\" inport=\"{}\"", inside.address, inside.port)?;
        write!(self.line, " out=\"{}\" outport=\"{}\"", outside.address, outside.port)
    }

    fn destination(&mut self, remote: Endpoint) -> fmt::Result {
        write!(self.line, " dst=\"{}\" dstport=\"{}\"", remote.address, remote.port)
    }

    fn tags(&mut self, Tags { outer, inner }: Tags) -> fmt::Result {
        if outer != 0 {
            write!(self.line, " vlan=\"{outer}\"")?;
        }
        if inner != 0 {
            write!(self.line, " cvlan=\"{inner}\"")?;
        }
        Ok(())
    }
}

/// Severity, and what stands in MSGID.
fn kind(what: EventKind) -> (u8, &'static str) {
    match what {
        EventKind::SessionCreated(_) => (INFORMATIONAL, "session-create"),
        EventKind::SessionDeleted(..) => (INFORMATIONAL, "session-delete"),
        EventKind::SessionInterim(..) => (INFORMATIONAL, "session-interim"),
        EventKind::MappingCreated(_) => (INFORMATIONAL, "mapping-create"),
        EventKind::MappingDeleted(_) => (INFORMATIONAL, "mapping-delete"),
        EventKind::BlockAllocated(_) => (INFORMATIONAL, "block-allocate"),
        EventKind::BlockReleased(_) => (INFORMATIONAL, "block-release"),
        EventKind::AddressesExhausted { .. } => (WARNING, "addresses-exhausted"),
        EventKind::PortsExhausted { .. } => (WARNING, "ports-exhausted"),
        EventKind::QuotaExceeded(_) => (WARNING, "quota-exceeded"),
    }
}

/// A PARAM-VALUE: `"`, `\` and `]` behind a backslash (RFC 5424 section 6.3.3). Control characters, which a line cannot have,
/// are spaces.
fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '"' | '\\' | ']') {
            escaped.push('\\');
        }
        escaped.push(if character.is_control() { ' ' } else { character });
    }
    escaped
}

/// Milliseconds since 1970 as RFC 5424 section 6.2.3 wants them.
struct Timestamp(u64);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The last millisecond of year 9999: the format has four digits.
        let ms = self.0.min(253_402_300_799_999);
        let (days, rest) = (ms / 86_400_000, ms % 86_400_000);
        let (year, month, day) = civil(days);
        let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
        let (second, milli) = (rest / 1000 % 60, rest % 1000);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    }
}

/// Year, month and day of a day since 1970. Years are counted from March, so that the leap day is a year's last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let era = days / 146_097; // 400 years
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (400 * era + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
#[path = "syslog_tests.rs"]
mod tests;
