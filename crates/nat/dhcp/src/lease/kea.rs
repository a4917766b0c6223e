//! Kea's memfile, `kea-leases4.csv`: a header, then a line each time a lease changes; an address's last line counts.

use super::lines::{Line, Lines};
use super::{CLIENT_ID, Faults, Lease, LeaseEnd, Record, SyntaxError, hostname, of_a_host};
use crate::mac;
use packet::Mac;
use std::net::Ipv4Addr;

/// What Kea writes for a lease that never ends.
const INFINITE: u64 = u32::MAX as u64;
/// Columns that a header may have.
const COLUMNS: usize = 64;
/// Longest hardware address, in bytes (Kea's `HWAddr::MAX_HWADDR_LEN`).
const HARDWARE: usize = 20;

/// Which column has what.
#[derive(Debug, Clone, Copy)]
struct Columns {
    address: usize,
    hardware: usize,
    client_id: usize,
    lifetime: usize,
    expires: usize,
    hostname: usize,
    state: usize,
}

/// Of the file's version 2, which is what Kea 1.4 and later begin with.
impl Default for Columns {
    fn default() -> Self {
        Self { address: 0, hardware: 1, client_id: 2, lifetime: 3, expires: 4, hostname: 8, state: 9 }
    }
}

impl Columns {
    /// By the names in a header; a column that is not there is none of a line's.
    fn of(header: &str) -> Result<Self, SyntaxError> {
        let names: Vec<&str> = header.split(',').take(COLUMNS).map(str::trim).collect();
        let at = |name: &str| names.iter().position(|found| *found == name);
        let needed = |name: &str| at(name).ok_or(SyntaxError::Missing);
        Ok(Self {
            address: needed("address")?,
            hardware: needed("hwaddr")?,
            client_id: needed("client_id")?,
            lifetime: needed("valid_lifetime")?,
            expires: needed("expire")?,
            hostname: at("hostname").unwrap_or(usize::MAX),
            state: at("state").unwrap_or(usize::MAX),
        })
    }
}

/// Reads `kea-leases4.csv`.
#[derive(Debug, Default)]
pub struct Kea {
    lines: Lines,
    columns: Columns,
    pub(super) faults: Faults,
}

impl Kea {
    /// The next bytes.
    pub fn feed(&mut self, bytes: &[u8], found: &mut impl FnMut(Record)) {
        let Self { lines, columns, faults } = self;
        lines.feed(bytes, |number, line| {
            let Line::Whole(line) = line else { return faults.add(number, SyntaxError::TooLong) };
            match read(line, columns) {
                Ok(Some(record)) => found(record),
                Ok(None) => {}
                Err(wrong) => faults.add(number, wrong),
            }
        });
    }

    /// The file ends.
    pub fn finish(&mut self) {
        if let Some(line) = self.lines.cut_off() {
            self.faults.add(line, SyntaxError::CutOff);
        }
    }
}

/// What a line says; nothing, if it is empty or a header.
fn read(line: &[u8], columns: &mut Columns) -> Result<Option<Record>, SyntaxError> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = str::from_utf8(line).map_err(|_| SyntaxError::Syntax)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.starts_with("address,") {
        *columns = Columns::of(line)?;
        return Ok(None);
    }
    let fields: Vec<&str> = line.split(',').take(COLUMNS).collect();
    let field = |at: usize| fields.get(at).copied();
    let needed = |at: usize| field(at).ok_or(SyntaxError::Missing);

    let address: Ipv4Addr = needed(columns.address)?.parse().map_err(|_| SyntaxError::Address)?;
    if !of_a_host(address) {
        return Err(SyntaxError::Address);
    }
    let lifetime = number(needed(columns.lifetime)?)?;
    let expires = number(needed(columns.expires)?)?;
    let hardware = bytes(needed(columns.hardware)?, HARDWARE)?.and_then(|bytes| Mac::try_from(bytes).ok());
    let client_id = bytes(needed(columns.client_id)?, CLIENT_ID)?;
    match field(columns.state).unwrap_or("0") {
        // A released lease is one of no time.
        "0" if lifetime == 0 => Ok(Some(Record::Free(address, LeaseEnd::Released))),
        "0" => {
            let expires = (lifetime != INFINITE).then_some(expires);
            let hostname = field(columns.hostname).and_then(|name| hostname(&unescaped(name)));
            Ok(Some(Record::Leased(Lease { address, hardware, client_id, hostname, expires })))
        }
        "1" => Ok(Some(Record::Free(address, LeaseEnd::Declined))),
        "2" => Ok(Some(Record::Free(address, LeaseEnd::Expired))),
        // Kea 2.7 and later keep a released lease in a state of its own.
        "3" => Ok(Some(Record::Free(address, LeaseEnd::Released))),
        _ => Err(SyntaxError::State),
    }
}

fn number(text: &str) -> Result<u64, SyntaxError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().ok_or(SyntaxError::Time)
}

/// Hexadecimal digits, or nothing.
fn bytes(text: &str, most: usize) -> Result<Option<Vec<u8>>, SyntaxError> {
    if text.is_empty() {
        return Ok(None);
    }
    mac::bytes(text, most).map(Some).ok_or(SyntaxError::Hardware)
}

/// With what Kea escaped as it was: `&#x2c` is a comma.
fn unescaped(field: &str) -> Vec<u8> {
    let mut parts = field.split("&#x");
    let mut plain = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let escaped = part.get(..2).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                plain.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => {
                plain.extend_from_slice(b"&#x");
                plain.extend_from_slice(part.as_bytes());
            }
        }
    }
    plain
}
