//! ISC's `dhcpd.leases` (dhcpd.leases(5)): a block each time a lease changes; an address's last block counts.

use super::{CLIENT_ID, Faults, Lease, LeaseEnd, Record, SyntaxError, civil, hostname, of_a_host};
use crate::mac;
use packet::Mac;
use std::net::Ipv4Addr;

/// Longest statement that is kept.
const STATEMENT: usize = 4 * 1024;
/// What a file's statements and blocks begin with, beside leases.
const OTHERS: [&str; 13] = [
    "authoring-byte-order",
    "server-duid",
    "failover",
    "host",
    "group",
    "class",
    "subclass",
    "zone",
    "key",
    "ia-na",
    "ia-ta",
    "ia-pd",
    "default-duid",
];

/// Where in the text we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ParserState {
    #[default]
    Statement,
    /// A statement too long to be kept: until it or its line ends.
    Skipped,
    Comment,
    Quoted,
    /// After a backslash.
    Escaped,
}

/// What a block said so far.
#[derive(Debug)]
struct Block {
    lease: Lease,
    line: u64,
    /// Whether it said when it ends.
    ends: bool,
    free: Option<LeaseEnd>,
    wrong: Option<SyntaxError>,
}

/// Reads `dhcpd.leases`. Holds one statement and one block.
#[derive(Debug, Default)]
pub struct Isc {
    within: ParserState,
    statement: Vec<u8>,
    /// Where in the statement its last line begins.
    last_line: usize,
    depth: u32,
    block: Option<Block>,
    /// Lines that are whole.
    lines: u64,
    pub(super) faults: Faults,
}

impl Isc {
    /// The next bytes.
    pub fn feed(&mut self, bytes: &[u8], found: &mut impl FnMut(Record)) {
        for byte in bytes {
            self.byte(*byte, found);
        }
    }

    /// The file ends.
    pub fn finish(&mut self) {
        if self.depth > 0 || self.within != ParserState::Statement || !self.statement.trim_ascii().is_empty()
        {
            self.fault(SyntaxError::CutOff);
        }
        *self = Self { lines: self.lines, faults: std::mem::take(&mut self.faults), ..Self::default() };
    }

    fn fault(&mut self, wrong: SyntaxError) {
        self.faults.add(self.lines + 1, wrong);
    }

    fn byte(&mut self, byte: u8, found: &mut impl FnMut(Record)) {
        use ParserState::{Comment, Escaped, Quoted, Skipped, Statement};
        match (self.within, byte) {
            (_, b'\n') => return self.line_ends(),
            (Comment, _) => return,
            (Skipped, b';') => self.within = Statement,
            (Skipped, b'{' | b'}') => {
                self.within = Statement;
                return self.brace(byte, found);
            }
            (Skipped, _) => return,
            (Escaped, _) => self.within = Quoted,
            (Quoted, b'\\') => self.within = Escaped,
            (Quoted, b'"') => self.within = Statement,
            (Quoted, _) => {}
            (Statement, b'"') => self.within = Quoted,
            (Statement, b'#') => {
                self.within = Comment;
                return;
            }
            (Statement, b'{' | b'}') => return self.brace(byte, found),
            (Statement, b';') => return self.statement_ends(),
            (Statement, _) => {}
        }
        if self.within == Statement
            && self.statement.is_empty()
            && (byte.is_ascii_whitespace() || byte == b';')
        {
            return;
        }
        if self.statement.len() == STATEMENT {
            self.fault(SyntaxError::TooLong);
            self.forget();
            self.within = Skipped;
        } else {
            self.statement.push(byte);
        }
    }

    /// Strings never go on in the next line, for the server escapes what is not printable.
    fn line_ends(&mut self) {
        match self.within {
            ParserState::Quoted | ParserState::Escaped => {
                self.fault(SyntaxError::Syntax);
                self.forget();
            }
            ParserState::Statement | ParserState::Comment | ParserState::Skipped
                if !self.statement.is_empty() =>
            {
                self.statement.push(b' ');
                self.last_line = self.statement.len();
            }
            _ => {}
        }
        self.within = ParserState::Statement;
        self.lines += 1;
    }

    fn forget(&mut self) {
        self.statement.clear();
        self.last_line = 0;
    }

    fn statement_ends(&mut self) {
        let statement = std::mem::take(&mut self.statement);
        match &mut self.block {
            Some(block) if self.depth == 1 => {
                if let Err(wrong) = block.apply_statement(&statement) {
                    block.wrong.get_or_insert(wrong);
                }
            }
            None if self.depth == 0 && !is_server_statement(&statement) => self.fault(SyntaxError::Syntax),
            _ => {}
        }
        self.statement = statement;
        self.forget();
    }

    fn brace(&mut self, brace: u8, found: &mut impl FnMut(Record)) {
        let statement = std::mem::take(&mut self.statement);
        if brace == b'{' {
            self.block_begins(&statement);
        } else {
            self.block_ends(!statement.trim_ascii().is_empty(), found);
        }
        self.statement = statement;
        self.forget();
    }

    /// A lease begins wherever a line says so: what comes before was cut off, as by a full disk.
    fn block_begins(&mut self, statement: &[u8]) {
        let last_line = statement.get(self.last_line..).unwrap_or(&[]).trim_ascii();
        let head = if is_lease(last_line) { last_line } else { statement.trim_ascii() };
        if !is_lease(head) {
            if self.depth == 0 && !is_server_statement(head) {
                self.fault(SyntaxError::Syntax);
            }
            self.depth = self.depth.saturating_add(1);
            return;
        }
        if self.depth > 0 || head.len() < statement.trim_ascii().len() {
            self.fault(SyntaxError::CutOff);
        }
        self.depth = 1;
        let address = str::from_utf8(&head[LEASE.len()..]).ok().and_then(|text| text.trim().parse().ok());
        let lease = Lease {
            address: address.unwrap_or(Ipv4Addr::UNSPECIFIED),
            hardware: None,
            client_id: None,
            hostname: None,
            expires: None,
        };
        let wrong = (!address.is_some_and(of_a_host)).then_some(SyntaxError::Address);
        self.block = Some(Block { lease, line: self.lines + 1, ends: false, free: None, wrong });
    }

    fn block_ends(&mut self, unfinished: bool, found: &mut impl FnMut(Record)) {
        if self.depth == 0 || (unfinished && self.depth == 1 && self.block.is_none()) {
            self.fault(SyntaxError::Syntax);
        }
        self.depth = self.depth.saturating_sub(1);
        if self.depth > 0 {
            return;
        }
        if let Some(block) = self.block.take() {
            let line = block.line;
            match if unfinished { Err(SyntaxError::Syntax) } else { block.record() } {
                Ok(record) => found(record),
                Err(wrong) => self.faults.add(line, wrong),
            }
        }
    }
}

const LEASE: &[u8] = b"lease ";

fn is_lease(head: &[u8]) -> bool {
    head.starts_with(LEASE)
}

/// Whether a server's file has such statements.
fn is_server_statement(statement: &[u8]) -> bool {
    let word = statement.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    statement.is_empty() || OTHERS.iter().any(|other| other.as_bytes() == word)
}

impl Block {
    /// Take what a statement of it says.
    fn apply_statement(&mut self, statement: &[u8]) -> Result<(), SyntaxError> {
        let statement = statement.trim_ascii();
        let after = |name: &str| {
            let rest = statement.strip_prefix(name.as_bytes())?;
            rest.first().is_some_and(u8::is_ascii_whitespace).then(|| rest.trim_ascii())
        };
        if let Some(state) = after("binding").and_then(|rest| rest.strip_prefix(b"state ")) {
            self.free = match state.trim_ascii() {
                b"active" => None,
                b"free" | b"backup" | b"released" | b"reset" => Some(LeaseEnd::Released),
                b"expired" => Some(LeaseEnd::Expired),
                b"abandoned" => Some(LeaseEnd::Declined),
                _ => return Err(SyntaxError::State),
            };
        } else if statement == b"abandoned" {
            self.free = Some(LeaseEnd::Declined);
        } else if let Some(time) = after("ends") {
            self.lease.expires = date(time)?;
            self.ends = true;
        } else if let Some(hardware) = after("hardware") {
            let text = str::from_utf8(hardware).map_err(|_| SyntaxError::Hardware)?;
            if let Some(mac) = text.strip_prefix("ethernet ") {
                let mac = mac::bytes(mac.trim(), 6).and_then(|bytes| Mac::try_from(bytes).ok());
                self.lease.hardware = Some(mac.ok_or(SyntaxError::Hardware)?);
            }
        } else if let Some(id) = after("uid") {
            let id = match unquoted(id) {
                Some(id) => id,
                None => str::from_utf8(id)
                    .ok()
                    .and_then(|id| mac::bytes(id, CLIENT_ID))
                    .ok_or(SyntaxError::Hardware)?,
            };
            if id.len() > CLIENT_ID {
                return Err(SyntaxError::Hardware);
            }
            self.lease.client_id = Some(id);
        } else if let Some(name) = after("client-hostname") {
            self.lease.hostname = hostname(&unquoted(name).ok_or(SyntaxError::Syntax)?);
        }
        Ok(())
    }

    /// What it says of its address.
    fn record(self) -> Result<Record, SyntaxError> {
        match (self.wrong, self.free) {
            (Some(wrong), _) => Err(wrong),
            (None, Some(why)) => Ok(Record::Free(self.lease.address, why)),
            (None, None) if self.ends => Ok(Record::Leased(self.lease)),
            (None, None) => Err(SyntaxError::Missing),
        }
    }
}

/// `never`, `epoch SECONDS`, or the number of the weekday, date and time in UTC.
fn date(text: &[u8]) -> Result<Option<u64>, SyntaxError> {
    let text = str::from_utf8(text).map_err(|_| SyntaxError::Time)?;
    let mut words = text.split_whitespace();
    let time = match (words.next(), words.next(), words.next(), words.next()) {
        (Some("never"), None, ..) => return Ok(None),
        (Some("epoch"), Some(seconds), None, _) if !seconds.starts_with('+') => seconds.parse().ok(),
        (Some(_weekday), Some(date), Some(time), None) => civil::seconds(date, time),
        _ => None,
    };
    time.map(Some).ok_or(SyntaxError::Time)
}

/// What stands between quotes, without its escapes: `\"`, `\\`, `\001`, `\x01`. `None`: it is not quoted.
fn unquoted(text: &[u8]) -> Option<Vec<u8>> {
    let mut inner = text.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let mut plain = Vec::with_capacity(inner.len());
    while let Some((byte, rest)) = inner.split_first() {
        inner = rest;
        if *byte != b'\\' {
            plain.push(*byte);
            continue;
        }
        let (digits, from, base) = match inner.first() {
            Some(b'0'..=b'7') => (3, 0, 8),
            Some(b'x') => (2, 1, 16),
            _ => (0, 0, 0),
        };
        let number = inner.get(from..from + digits).and_then(|digits| str::from_utf8(digits).ok());
        match number.and_then(|digits| u8::from_str_radix(digits, base.max(2)).ok()).filter(|_| digits > 0) {
            Some(byte) => {
                plain.push(byte);
                inner = &inner[from + digits..];
            }
            None => {
                let (byte, rest) = inner.split_first()?;
                plain.push(match byte {
                    b't' => b'\t',
                    b'r' => b'\r',
                    b'n' => b'\n',
                    b'b' => 8,
                    other => *other,
                });
                inner = rest;
            }
        }
    }
    Some(plain)
}
