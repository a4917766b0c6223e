//! What a rule of the classifier says about packets: words to a tree.
//!
//! ```text
//! tcp dst port 22          src 10.0.0.0/8 and not udp          (vlan 100 or vlan 200) and ip6
//! ```

use protocol::problem::closest;
use std::net::IpAddr;

/// Most words of a rule.
const WORDS: usize = 512;
/// How deep brackets and negations may be nested.
const DEPTH: usize = 32;

/// A condition on a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expression {
    /// Each packet.
    Any,
    /// Those that fail this one.
    Not(Box<Expression>),
    /// Those that meet both.
    And(Box<Expression>, Box<Expression>),
    /// Those that meet one of them.
    Or(Box<Expression>, Box<Expression>),
    /// A single test.
    Test(Test),
}

/// A test of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// IPv4 or IPv6.
    Ip,
    /// IPv4.
    Ip4,
    /// IPv6.
    Ip6,
    /// A piece of an IP packet.
    Fragment,
    /// IP of this protocol, behind extension headers.
    Protocol(u8),
    /// This EtherType, behind VLAN tags.
    EtherType(u16),
    /// At least one VLAN tag.
    Tagged,
    /// This VLAN: of the outer tag (0) or the inner one (1).
    Vlan(u8, u16),
    /// From this network.
    Source(Network),
    /// To this network.
    Destination(Network),
    /// From a port of this range: TCP, UDP, UDP-Lite, SCTP, DCCP.
    SourcePort(u16, u16),
    /// To a port of this range.
    DestinationPort(u16, u16),
}

/// Addresses with the same first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// Of IPv6 addresses.
    pub v6: bool,
    /// The bits; an IPv4 address has the low 32.
    pub bits: u128,
    /// Those that count.
    pub mask: u128,
}

impl Network {
    /// From `10.0.0.0/8`, `10.0.0.1`, `2001:db8::/32`.
    fn parse(text: &str) -> Result<Self, Fault> {
        let form = || {
            Fault::new(
                format!("{text:?} is no address and no network"),
                "Write it like 10.0.0.0/8, 10.0.0.1 or 2001:db8::/32",
            )
        };
        let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.parse().map_err(|_| form())?;
        let (v6, bits, width) = match address {
            IpAddr::V4(v4) => (false, u128::from(v4.to_bits()), 32),
            IpAddr::V6(v6) => (true, v6.to_bits(), 128),
        };
        let length = match length {
            None => width,
            Some(length) => length.parse::<u32>().ok().filter(|l| *l <= width).ok_or_else(form)?,
        };
        let all = if v6 { u128::MAX } else { u128::from(u32::MAX) };
        let mask = all & all.checked_shl(width - length).unwrap_or(0);
        if bits & !mask != 0 {
            let what = format!("{text} has bits set behind its prefix");
            return Err(Fault::new(what, "Set them to 0, or write the address without a prefix"));
        }
        Ok(Self { v6, bits, mask })
    }
}

/// Why a rule cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub fix: String,
}

impl Fault {
    fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), fix: fix.into() }
    }
}

/// The words that a condition begins with.
const FIRST: [&str; 21] = [
    "any",
    "not",
    "ip",
    "ip4",
    "ip6",
    "arp",
    "tcp",
    "udp",
    "icmp",
    "icmp6",
    "sctp",
    "fragment",
    "tagged",
    "untagged",
    "src",
    "dst",
    "host",
    "port",
    "vlan",
    "inner",
    "ethertype",
];

impl Expression {
    /// From words.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let spaced = text.replace('(', " ( ").replace(')', " ) ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        if words.len() > WORDS {
            let what = format!("a rule of {} words is too long", words.len());
            return Err(Fault::new(what, "Use at most 512, or several rules with one output"));
        }
        let mut parser = Parser { words: &words, at: 0, depth: 0 };
        let found = parser.or()?;
        match parser.peek() {
            None => Ok(found),
            Some(")") => Err(Fault::new("a bracket is closed that was not opened", "Take the ) away")),
            Some(word) => Err(unknown(word)),
        }
    }
}

fn unknown(word: &str) -> Fault {
    let fix = match closest(word, FIRST.into_iter().chain(["and", "or", "proto"])) {
        Some(near) if near != word => format!("Did you mean {near}?"),
        _ => format!("A condition begins with {}", FIRST.join(", ")),
    };
    Fault::new(format!("{word:?} is not understood here"), fix)
}

struct Parser<'a> {
    words: &'a [&'a str],
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn next(&mut self) -> Result<&'a str, Fault> {
        let word = self.peek().ok_or_else(|| {
            Fault::new(
                "the rule ends where a condition is expected",
                "Write one, such as any or tcp dst port 22",
            )
        })?;
        self.at += 1;
        Ok(word)
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let there = self.peek() == Some(word);
        self.at += usize::from(there);
        there
    }

    fn or(&mut self) -> Result<Expression, Fault> {
        let mut found = self.and()?;
        while self.accept_word("or") {
            found = Expression::Or(Box::new(found), Box::new(self.and()?));
        }
        Ok(found)
    }

    /// Conditions side by side must hold together, with or without the word between them.
    fn and(&mut self) -> Result<Expression, Fault> {
        let mut found = self.not()?;
        while self.accept_word("and") || self.peek().is_some_and(|word| word == "(" || FIRST.contains(&word))
        {
            found = Expression::And(Box::new(found), Box::new(self.not()?));
        }
        Ok(found)
    }

    fn not(&mut self) -> Result<Expression, Fault> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(Fault::new("brackets and negations are nested too deeply", "Use at most 32 levels"));
        }
        let found = if self.accept_word("not") {
            Expression::Not(Box::new(self.not()?))
        } else if self.accept_word("(") {
            let found = self.or()?;
            if !self.accept_word(")") {
                return Err(Fault::new("a bracket is not closed", "Add a )"));
            }
            found
        } else {
            self.condition()?
        };
        self.depth -= 1;
        Ok(found)
    }

    fn condition(&mut self) -> Result<Expression, Fault> {
        let word = self.next()?;
        let test = match word {
            "any" => return Ok(Expression::Any),
            "ip" if self.accept_word("proto") => Test::Protocol(self.number("an IP protocol", 255)? as u8),
            "ip" => Test::Ip,
            "ip4" => Test::Ip4,
            "ip6" => Test::Ip6,
            "arp" => Test::EtherType(packet::ethernet::kind::ARP),
            "tcp" => Test::Protocol(6),
            "udp" => Test::Protocol(17),
            "icmp" => Test::Protocol(1),
            "icmp6" => Test::Protocol(58),
            "sctp" => Test::Protocol(132),
            "fragment" => Test::Fragment,
            "tagged" => Test::Tagged,
            "untagged" => return Ok(Expression::Not(Box::new(Expression::Test(Test::Tagged)))),
            "ethertype" => Test::EtherType(self.number("an EtherType", 0xffff)?),
            "vlan" => Test::Vlan(0, self.number("a VLAN", 4095)?),
            "inner" if self.accept_word("vlan") => Test::Vlan(1, self.number("a VLAN", 4095)?),
            "src" if self.accept_word("port") => {
                let (first, last) = self.ports()?;
                Test::SourcePort(first, last)
            }
            "dst" if self.accept_word("port") => {
                let (first, last) = self.ports()?;
                Test::DestinationPort(first, last)
            }
            "src" => Test::Source(Network::parse(self.next()?)?),
            "dst" => Test::Destination(Network::parse(self.next()?)?),
            "host" => {
                let network = Network::parse(self.next()?)?;
                return Ok(any_of(Test::Source(network), Test::Destination(network)));
            }
            "port" => {
                let (first, last) = self.ports()?;
                return Ok(any_of(Test::SourcePort(first, last), Test::DestinationPort(first, last)));
            }
            other => return Err(unknown(other)),
        };
        Ok(Expression::Test(test))
    }

    /// A number, decimal or with `0x`.
    fn number(&mut self, what: &str, most: u16) -> Result<u16, Fault> {
        let word = self.next()?;
        let parsed = match word.strip_prefix("0x") {
            Some(hex) => u16::from_str_radix(hex, 16),
            None => word.parse(),
        };
        parsed.ok().filter(|n| *n <= most).ok_or_else(|| {
            Fault::new(format!("{word:?} is not {what}"), format!("Write a number from 0 to {most}"))
        })
    }

    /// `22` or `1024-65535`.
    fn ports(&mut self) -> Result<(u16, u16), Fault> {
        let word = self.next()?;
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
            _ => Err(Fault::new(format!("{word:?} is no port"), "Write it like 22, or 1024-65535")),
        }
    }
}

fn any_of(a: Test, b: Test) -> Expression {
    Expression::Or(Box::new(Expression::Test(a)), Box::new(Expression::Test(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Expression {
        Expression::parse(text).unwrap_or_else(|why| panic!("{text}: {why:?}"))
    }

    #[test]
    fn words_bind_as_people_read_them() {
        assert_eq!(parsed("tcp dst port 22"), parsed("tcp and dst port 22-22"));
        assert_eq!(parsed("arp or tcp and ip6"), parsed("arp or (tcp and ip6)"));
        assert_eq!(parsed("not arp tcp"), parsed("(not arp) and tcp"));
        assert_eq!(parsed("port 5"), parsed("src port 5 or dst port 5"));
        assert_eq!(parsed("ip proto 0x2f"), Expression::Test(Test::Protocol(47)));
        assert_eq!(parsed("inner vlan 7"), Expression::Test(Test::Vlan(1, 7)));
        let all = Network { v6: false, bits: 0, mask: 0 };
        assert_eq!(parsed("src 0.0.0.0/0"), Expression::Test(Test::Source(all)));
        let one = Network { v6: true, bits: 1, mask: u128::MAX };
        assert_eq!(parsed("dst ::1"), Expression::Test(Test::Destination(one)));
        let eight = Network { v6: false, bits: 10 << 24, mask: 0xff00_0000 };
        assert_eq!(parsed("src 10.0.0.0/8"), Expression::Test(Test::Source(eight)));
    }

    #[test]
    fn what_cannot_be_read_is_named_with_a_remedy() {
        for (text, what, fix) in [
            ("", "ends where a condition", "such as any"),
            ("tpc", "\"tpc\"", "mean tcp"),
            ("tcp prot 5", "\"prot\"", "mean port"),
            ("tcp dst port x", "\"x\" is no port", "1024-65535"),
            ("port 9-5", "is no port", ""),
            ("port 65536", "is no port", ""),
            ("vlan 4096", "is not a VLAN", "0 to 4095"),
            ("ip proto 256", "IP protocol", "0 to 255"),
            ("src 10.0.0.1/8", "behind its prefix", "Set them to 0"),
            ("src 10.0.0.0/33", "no network", "10.0.0.0/8"),
            ("src host", "no address", ""),
            ("(tcp", "not closed", "Add a )"),
            ("tcp)", "not opened", "away"),
            ("tcp or", "ends where", ""),
            ("inner 5", "\"inner\"", ""),
        ] {
            let fault = Expression::parse(text).expect_err(text);
            assert!(fault.what.contains(what) && fault.fix.contains(fix), "{text}: {fault:?}");
            assert!(!fault.fix.is_empty(), "{text}");
        }
        assert!(Expression::parse(&format!("{}any", "not ".repeat(31))).is_ok());
        assert!(Expression::parse(&format!("{}any", "not ".repeat(32))).is_err());
        assert!(Expression::parse(&format!("any{}", " any".repeat(600))).is_err());
    }
}
