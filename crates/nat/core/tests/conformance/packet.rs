//! Packets as text, and text as packets.
//!
//! ```text
//!  udp 10.0.0.2:4000 > 198.51.100.9:53            tcp 10.0.0.2:4000 > 198.51.100.9:80 SYN mss 1460
//!  icmp echo 10.0.0.2:7 > 198.51.100.9:0          icmp reply 198.51.100.9:0 > 203.0.113.1:7      (the identifier is the port)
//!  icmp 3/3 192.0.2.1 > 203.0.113.1 [ udp 203.0.113.1:2000 > 198.51.100.9:53 ]
//!  piece 17 10.0.0.2 > 198.51.100.9 frag 77 1000
//! ```
//! behind which may stand, in this order: `len N` (payload bytes, 8 unless told), `ttl N` (64), `df`, `frag ID OFFSET`, `more`,
//! `options 148.4.0.0` (of the IP header), `vlan ID` or `vlan ID.ID`, `nosum` (UDP without checksum), `badsum` (a wrong one), `cut N` (the quoted packet ends after N bytes).

use packet::checksum::{self, pseudo_header};
use std::net::Ipv4Addr;

const FLAGS: [&str; 5] = ["FIN", "SYN", "RST", "PSH", "ACK"];

#[derive(Debug, Clone, Default)]
pub struct Packet {
    protocol: u8,
    source: (u32, u16),
    destination: (u32, u16),
    icmp: (u8, u8),
    flags: u8,
    mss: Option<u16>,
    len: Option<usize>,
    ttl: Option<u8>,
    df: bool,
    fragment: Option<(u16, u16)>,
    more: bool,
    options: Vec<u8>,
    vlan: Vec<u16>,
    nosum: bool,
    badsum: bool,
    cut: Option<usize>,
    quote: Option<Box<Packet>>,
    mtu: u16,
}

fn endpoint(text: &str) -> Result<(u32, u16), String> {
    let (address, port) = text.split_once(':').unwrap_or((text, "0"));
    let address: Ipv4Addr = address.parse().map_err(|_| format!("no address: {text}"))?;
    Ok((address.to_bits(), port.parse().map_err(|_| format!("no port: {text}"))?))
}

impl Packet {
    pub fn parse(text: &str) -> Result<Self, String> {
        let (text, quote) = match (text.split_once('['), text.rsplit_once(']')) {
            (Some((before, _)), Some((inner, after))) => {
                let (_, inner) = inner.split_once('[').unwrap_or(("", inner));
                (format!("{before} {after}"), Some(Box::new(Self::parse(inner.trim())?)))
            }
            _ => (text.to_owned(), None),
        };
        let mut words = text.split_whitespace();
        let mut next = || words.next().ok_or_else(|| format!("it ends early: {text}"));
        let mut packet = Self { quote, ..Self::default() };
        match next()? {
            "udp" => packet.protocol = 17,
            "tcp" => packet.protocol = 6,
            "icmp" => {
                packet.protocol = 1;
                packet.icmp = match next()? {
                    "echo" => (8, 0),
                    "reply" => (0, 0),
                    number => {
                        let (kind, code) = number.split_once('/').ok_or("type/code")?;
                        (kind.parse().map_err(|_| "type")?, code.parse().map_err(|_| "code")?)
                    }
                };
            }
            "piece" => packet.protocol = next()?.parse().map_err(|_| "protocol")?,
            other => return Err(format!("no protocol: {other}")),
        }
        packet.source = endpoint(next()?)?;
        if next()? != ">" {
            return Err(format!("no >: {text}"));
        }
        packet.destination = endpoint(next()?)?;
        while let Some(word) = words.next() {
            let mut number = |what: &str| -> Result<u16, String> {
                words.next().and_then(|word| word.parse().ok()).ok_or_else(|| format!("{what} of {text}"))
            };
            match word {
                "len" => packet.len = Some(number("len")?.into()),
                "ttl" => packet.ttl = Some(number("ttl")? as u8),
                "mss" => packet.mss = Some(number("mss")?),
                "mtu" => packet.mtu = number("mtu")?,
                "cut" => packet.cut = Some(number("cut")?.into()),
                "frag" => packet.fragment = Some((number("frag")?, number("offset")?)),
                "options" => {
                    let bytes = words.next().ok_or("options")?;
                    packet.options = bytes
                        .split('.')
                        .map(|byte| byte.parse().map_err(|_| "options"))
                        .collect::<Result<_, _>>()?;
                    packet.options.resize(packet.options.len().next_multiple_of(4), 0);
                }
                "vlan" => {
                    let ids = words.next().ok_or("vlan")?;
                    packet.vlan =
                        ids.split('.').map(|id| id.parse().map_err(|_| "vlan")).collect::<Result<_, _>>()?;
                }
                "df" => packet.df = true,
                "more" => packet.more = true,
                "nosum" => packet.nosum = true,
                "badsum" => packet.badsum = true,
                flags => {
                    for flag in flags.split(',') {
                        let bit =
                            FLAGS.iter().position(|name| *name == flag).ok_or(format!("what is {flag}?"))?;
                        packet.flags |= 1 << bit;
                    }
                }
            }
        }
        Ok(packet)
    }

    /// The packet from its IP header on.
    pub fn ip(&self) -> Vec<u8> {
        let payload: Vec<u8> = (0..self.len.unwrap_or(8)).map(|i| i as u8).collect();
        let later = self.fragment.is_some_and(|(_, offset)| offset > 0);
        let ports = [self.source.1.to_be_bytes(), self.destination.1.to_be_bytes()].concat();
        let mut segment = match self.protocol {
            _ if later => payload,
            17 => {
                let len = (8 + payload.len()) as u16;
                [&ports[..], &len.to_be_bytes(), &[0, 0], &payload].concat()
            }
            6 => {
                let options =
                    self.mss.map(|mss| [&[2, 4][..], &mss.to_be_bytes()].concat()).unwrap_or_default();
                let offset = ((20 + options.len() as u8) / 4) << 4;
                let head = [0, 0, 0, 1, 0, 0, 0, 1, offset, self.flags, 0xff, 0xff, 0, 0, 0, 0];
                [&ports[..], &head, &options, if self.flags & 2 != 0 { &[] } else { &payload }].concat()
            }
            _ => match &self.quote {
                Some(quote) => {
                    let quoted = quote.ip();
                    let len = quote.cut.unwrap_or(quoted.len()).min(quoted.len());
                    let head = [self.icmp.0, self.icmp.1, 0, 0, 0, 0, (self.mtu >> 8) as u8, self.mtu as u8];
                    [&head, &quoted[..len]].concat()
                }
                None => {
                    let id = if self.icmp.0 == 8 { self.source.1 } else { self.destination.1 };
                    let [high, low] = id.to_be_bytes();
                    [&[self.icmp.0, self.icmp.1, 0, 0, high, low, 0, 1][..], &payload].concat()
                }
            },
        };
        let addresses = [self.source.0.to_be_bytes(), self.destination.0.to_be_bytes()].concat();
        let at = match self.protocol {
            17 => 6,
            6 => 16,
            _ => 2,
        };
        if !later && !self.nosum && segment.len() >= at + 2 {
            let pseudo = match self.protocol {
                1 => checksum::Sum::ZERO,
                protocol => pseudo_header(&addresses, protocol, segment.len() as u32),
            };
            let sum = pseudo.plus(checksum::Sum::ZERO.bytes(&segment)).checksum();
            let sum = if sum == 0 && self.protocol == 17 { 0xffff } else { sum } ^ u16::from(self.badsum);
            segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        let (id, offset) = self.fragment.unwrap_or((0, 0));
        let bits = (offset / 8) | (u16::from(self.more) << 13) | (u16::from(self.df) << 14);
        let total = (20 + self.options.len() + segment.len()) as u16;
        let mut header = [&[0u8; 20], &self.options[..]].concat();
        let first = 0x40 | (header.len() / 4) as u8;
        (header[0], header[8], header[9]) = (first, self.ttl.unwrap_or(64), self.protocol);
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[4..6].copy_from_slice(&id.to_be_bytes());
        header[6..8].copy_from_slice(&bits.to_be_bytes());
        header[12..20].copy_from_slice(&addresses);
        let sum = checksum::of(&header).to_be_bytes();
        header[10..12].copy_from_slice(&sum);
        [&header[..], &segment].concat()
    }

    /// The frame, with its tags.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for (at, id) in self.vlan.iter().enumerate() {
            let kind: u16 = if at + 1 < self.vlan.len() { 0x88a8 } else { 0x8100 };
            frame.extend([kind.to_be_bytes(), id.to_be_bytes()].concat());
        }
        frame.extend([8, 0]);
        frame.extend(self.ip());
        frame
    }
}

/// A packet in the words in which it is written; what is as usual is not said, 63 hops left are as usual too. Checksums are verified.
pub fn text(ip: &[u8], realm: u32) -> String {
    describe(ip, realm, true)
}

fn describe(ip: &[u8], realm: u32, whole: bool) -> String {
    let Some(header) = ip.first_chunk::<20>() else { return "no IP header".into() };
    let word =
        |bytes: &[u8], at: usize| bytes.get(at..at + 2).map_or(0, |two| u16::from_be_bytes([two[0], two[1]]));
    let (protocol, bits) = (header[9], word(header, 6));
    let offset = (bits & 0x1fff) * 8;
    let more = bits & 0x2000 != 0;
    let total = usize::from(word(header, 2));
    let l4 = usize::from(header[0] & 0x0f) * 4;
    let (Some(options), Some(segment)) = (ip.get(20..l4), ip.get(l4..total.min(ip.len()))) else {
        return "broken".into();
    };
    let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let (source, destination) = (address(12), address(16));
    let mut extra = Vec::new();
    let mut usual = |len: usize, at: usize| {
        if len != 8 && whole {
            extra.push(format!("len {len}"));
        }
        at
    };
    let mut line = match protocol {
        _ if offset > 0 => {
            usual(segment.len(), 0);
            format!("piece {protocol} {source} > {destination}")
        }
        17 => {
            usual(segment.len().saturating_sub(8), 0);
            format!("udp {source}:{} > {destination}:{}", word(segment, 0), word(segment, 2))
        }
        6 => {
            let flags = segment.get(13).copied().unwrap_or(0);
            let names: Vec<&str> = (0..5).filter(|bit| flags >> bit & 1 == 1).map(|bit| FLAGS[bit]).collect();
            let mss = if segment.get(20) == Some(&2) && segment.len() == 24 {
                format!(" mss {}", word(segment, 22))
            } else {
                String::new()
            };
            let flags = if whole { format!(" {}{mss}", names.join(",")) } else { String::new() };
            format!("tcp {source}:{} > {destination}:{}{flags}", word(segment, 0), word(segment, 2))
        }
        _ => match segment.first().copied().unwrap_or(255) {
            8 => {
                usual(segment.len().saturating_sub(8), 0);
                format!("icmp echo {source}:{} > {destination}:0", word(segment, 4))
            }
            0 => {
                usual(segment.len().saturating_sub(8), 0);
                format!("icmp reply {source}:0 > {destination}:{}", word(segment, 4))
            }
            kind => {
                let quote = describe(segment.get(8..).unwrap_or(&[]), 0, false);
                let mtu = match word(segment, 6) {
                    0 => String::new(),
                    mtu => format!(" mtu {mtu}"),
                };
                format!(
                    "icmp {kind}/{} {source} > {destination} [ {quote} ]{mtu}",
                    segment.get(1).copied().unwrap_or(0)
                )
            }
        },
    };
    if whole {
        if !matches!(header[8], 63 | 64) {
            extra.push(format!("ttl {}", header[8]));
        }
        if bits & 0x4000 != 0 {
            extra.push("df".into());
        }
        if offset > 0 || more {
            extra.push(format!("frag {} {offset}", word(header, 4)));
        }
        if more {
            extra.push("more".into());
        }
    }
    if !options.is_empty() {
        let bytes: Vec<String> = options.iter().map(ToString::to_string).collect();
        extra.push(format!("options {}", bytes.join(".")));
    }
    if realm != 0 {
        let (outer, inner) = (realm >> 12, realm & 0xfff);
        extra.push(if inner == 0 { format!("vlan {outer}") } else { format!("vlan {outer}.{inner}") });
    }
    let pseudo = match protocol {
        1 => checksum::Sum::ZERO,
        _ => pseudo_header(&header[12..20], protocol, segment.len() as u32),
    };
    let right = pseudo.plus(checksum::Sum::ZERO.bytes(segment)).checksum() == 0;
    let all_there = offset == 0 && !more && segment.len() == total.saturating_sub(l4);
    if protocol == 17 && all_there && word(segment, 6) == 0 {
        extra.push("nosum".into());
    } else if all_there && !right || checksum::of(&ip[..l4]) != 0 {
        extra.push("badsum".into());
    }
    for word in extra {
        line = format!("{line} {word}");
    }
    line
}
