//! Lease files: bytes in any pieces become records, records become events.
//!
//! [`Parser`] reads one file. [`Table`] holds what is known and tells what a record changes.

mod civil;
mod isc;
mod kea;
mod lines;
mod table;

pub use isc::Isc;
pub use kea::Kea;
pub use table::{LeaseEnd, LeaseEvent, Table};

use packet::Mac;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Longest client identifier that is kept: what fits in the option (RFC 2132 section 9.14).
pub const CLIENT_ID: usize = 255;
/// Longest host name that is kept, in bytes: that of a domain name (RFC 1035).
pub const HOSTNAME: usize = 255;
/// Faults that are kept with their line; all are counted.
const FAULTS: usize = 16;

/// Which server writes the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Kea's memfile, `kea-leases4.csv`.
    Kea,
    /// ISC's `dhcpd.leases`.
    Isc,
}

/// An address that a server gave to a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The address.
    pub address: Ipv4Addr,
    /// The client's Ethernet address; none where the lease is of other hardware.
    pub hardware: Option<Mac>,
    /// The client's identifier (option 61).
    pub client_id: Option<Vec<u8>>,
    /// What the client calls itself; what is no UTF-8 is replaced.
    pub hostname: Option<String>,
    /// Seconds since 1970 in UTC at which it ends, if it does.
    pub expires: Option<u64>,
}

impl Lease {
    /// Whether both are of the same client: by hardware address where both have one, else by client identifier.
    pub fn same_client(&self, other: &Self) -> bool {
        match (self.hardware, other.hardware) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => self.client_id == other.client_id,
        }
    }
}

/// What a file says of an address. What it says last counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// It is leased.
    Leased(Lease),
    /// It is not.
    Free(Ipv4Addr, LeaseEnd),
}

impl Record {
    /// The address of which it is.
    pub fn address(&self) -> Ipv4Addr {
        match self {
            Self::Leased(lease) => lease.address,
            Self::Free(address, _) => *address,
        }
    }
}

/// Why a part of a file says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum SyntaxError {
    /// Longer than any server writes.
    #[error("the line is too long")]
    TooLong,
    /// The file ends within it.
    #[error("it is cut off")]
    CutOff,
    /// A column or statement that a lease must have is missing.
    #[error("a field is missing")]
    Missing,
    /// No IPv4 address of a host.
    #[error("not an IPv4 address of a host")]
    Address,
    /// Neither digits nor colons.
    #[error("not a hardware address or client identifier")]
    Hardware,
    /// No time that we can read.
    #[error("not a time")]
    Time,
    /// A state that no server writes.
    #[error("not a state of a lease")]
    State,
    /// A brace, quote or name where none belongs.
    #[error("not what belongs there")]
    Syntax,
}

/// What could not be read, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {wrong}")]
pub struct Fault {
    /// Counted from 1.
    pub line: u64,
    /// What is wrong with it.
    pub wrong: SyntaxError,
}

/// What could not be read: all counted, the latest kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    count: u64,
    latest: VecDeque<Fault>,
}

impl Faults {
    /// One more.
    pub(crate) fn add(&mut self, line: u64, wrong: SyntaxError) {
        self.count += 1;
        if self.latest.len() == FAULTS {
            self.latest.pop_front();
        }
        self.latest.push_back(Fault { line, wrong });
    }

    /// Those of another file.
    pub(crate) fn append(&mut self, other: Self) {
        let kept = other.latest.len() as u64;
        other.latest.iter().for_each(|fault| self.add(fault.line, fault.wrong));
        self.count += other.count - kept;
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The latest of them, the oldest first.
    pub fn latest(&self) -> impl Iterator<Item = &Fault> {
        self.latest.iter()
    }
}

/// Reads one lease file from its beginning.
#[derive(Debug)]
pub enum Parser {
    /// Kea's.
    Kea(Kea),
    /// ISC's.
    Isc(Isc),
}

impl Parser {
    /// At the beginning of a file.
    pub fn new(format: Format) -> Self {
        match format {
            Format::Kea => Self::Kea(Kea::default()),
            Format::Isc => Self::Isc(Isc::default()),
        }
    }

    /// The next bytes of the file; what is not whole yet waits for more.
    pub fn feed(&mut self, bytes: &[u8], mut found: impl FnMut(Record)) {
        match self {
            Self::Kea(kea) => kea.feed(bytes, &mut found),
            Self::Isc(isc) => isc.feed(bytes, &mut found),
        }
    }

    /// The file ends: what is not whole is a fault.
    pub fn finish(&mut self) {
        match self {
            Self::Kea(kea) => kea.finish(),
            Self::Isc(isc) => isc.finish(),
        }
    }

    /// What could not be read since this was asked last.
    pub fn take_faults(&mut self) -> Faults {
        std::mem::take(match self {
            Self::Kea(kea) => &mut kea.faults,
            Self::Isc(isc) => &mut isc.faults,
        })
    }
}

/// An address that a host can have: not 0/8, loopback, multicast, reserved or broadcast.
pub(crate) fn of_a_host(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    first != 0 && first != 127 && first < 224
}

/// At most so many bytes of a name, at a character's boundary.
fn hostname(name: &[u8]) -> Option<String> {
    let mut name = String::from_utf8_lossy(&name[..name.len().min(HOSTNAME)]).into_owned();
    while name.len() > HOSTNAME {
        name.pop();
    }
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests;
