//! The first stage of a NAT: only what is valid is translated, and what is for the box itself goes to the box.

use crate::sites::Macs;
use ::element::kind::{Build, ElementKind};
use dpdk::{Batch, Mbuf, Meta, MetaFlags};
use engine::parser::{self, ParseObserver, Parser};
use engine::{Cx, Element, ElementInfo};
use nat_core::packet_filter::is_martian;
use packet::layers::protocol;
use packet::{Mac, ipv4};
use profile::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};

const KIND: &str = "validity";
const OUTPUTS: [&str; 2] = ["out", "local"];
/// Reasons to drop: those of the parser, and two more.
const DROPS: [&str; parser::DROPS.len() + 2] = {
    let mut names = ["other_mac"; parser::DROPS.len() + 2];
    let mut i = 0;
    while i < parser::DROPS.len() {
        names[i] = parser::DROPS[i];
        i += 1;
    }
    names[MARTIAN_SOURCE] = "martian_source";
    names
};
const OTHER_MAC: u8 = parser::DROPS.len() as u8;
const MARTIAN_SOURCE: usize = parser::DROPS.len() + 1;
const LOCAL: usize = 1;
const DHCP_CLIENT: u16 = 68;

/// Finds the headers of packets that come in by a port and verifies their checksums; what is broken is dropped by its fault.
/// IPv4 for others goes on. What is no IPv4, is for a group in IP or in Ethernet, or goes to an address of the port itself or one of
/// `also` leaves by `local`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The port by which its packets come in.
    pub port: String,
    /// Verify checksums of TCP, UDP and ICMP, too. Default true; that of IPv4 headers always is.
    #[serde(default = "yes")]
    pub verify: bool,
    /// Let requests of PCP (RFC 6887), UDP to port 5351 of the port's own address, go on by `out` instead. Default false; true
    /// where the `nat44` behind it has `pcp`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pcp: bool,
    /// Addresses of the box at its other ports: what goes there leaves by `local`, as what goes to those of the port itself. Default:
    /// none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Ipv4Addr>,
    /// Answers of DHCP servers, UDP to port 68, leave by `local` whatever address they go to. Default false.
    #[serde(default)]
    pub dhcp: bool,
    /// Drop what goes to another Ethernet address than the port's own: a switch floods it, and another router forwards it (RFC 1812
    /// section 5.3.4). Default false: all that comes in is for the box.
    #[serde(default)]
    pub own_mac: bool,
    /// Ethernet addresses that are the box's as well, with `own_mac`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub macs: Option<MacRange>,
}

/// Consecutive Ethernet addresses, as a `nat-sites` has them for its sites.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MacRange {
    /// The first. Default 02:4e:44:00:00:00.
    #[serde(default = "first_mac", with = "nat_dhcp::mac")]
    #[schemars(with = "String")]
    pub first: Mac,
    /// How many.
    pub count: u32,
}

fn yes() -> bool {
    true
}

fn first_mac() -> Mac {
    crate::sites::FIRST_MAC
}

impl ElementKind for Options {
    const KIND: &'static str = KIND;
    const DROPS: &'static [&'static str] = &DROPS;
    const REPLICABLE: bool = true;
    const EXAMPLE: &'static str = r#"{"port": "a"}"#;

    fn outputs(&self) -> Vec<String> {
        OUTPUTS.map(str::to_owned).to_vec()
    }

    fn ports(&self) -> Vec<(&'static str, &str)> {
        vec![("port", &self.port)]
    }

    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, Error> {
        let (number, port) = cx.port("port", &self.port)?;
        // On the way of the NAT nobody asks for flows: `nat` writes the subscriber in place of it.
        let parser = Parser::new(u16::try_from(number).unwrap_or(u16::MAX)).unhashed();
        let parser = if self.verify { parser.verifying() } else { parser };
        let own = port.addrs.own().iter().filter_map(|own| match own.ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        });
        let mac = self.own_mac.then(|| port.addrs.bare().mac);
        let macs =
            self.macs.as_ref().map_or(Macs::new([0; 6], 0), |its| Macs::new(its.first, its.count as usize));
        let own = own.chain(self.also.iter().copied()).collect();
        Ok(Box::new(Validity { parser, mac, macs, own, pcp: self.pcp, dhcp: self.dhcp }))
    }
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckResult {
    Good,
    Local,
    Broken(u8),
}

/// Element: verifies packets, and tells those for the box from the others.
#[derive(Debug)]
struct Validity {
    parser: Parser,
    /// The port's own address in Ethernet, if only what goes there is for the box.
    mac: Option<Mac>,
    /// Others that are the box's as well.
    macs: Macs,
    /// The port's own addresses, and the box's at other ports.
    own: Vec<Ipv4Addr>,
    pcp: bool,
    dhcp: bool,
}

impl Validity {
    #[inline]
    fn verify(&self, mbuf: &mut Mbuf) -> CheckResult {
        match self.parser.parse_and(mbuf, self) {
            Ok(found) => found,
            Err(reason) => CheckResult::Broken(reason as u8),
        }
    }

    /// For whom a packet is that is not for the port's own Ethernet address, by what it is in IP: what all got is not forwarded.
    #[inline(never)]
    fn of_another_mac(&self, to: Mac, in_ip: CheckResult) -> CheckResult {
        if to[0] & 1 == 1 {
            return CheckResult::Local;
        }
        self.macs.number(to).map_or(CheckResult::Broken(OTHER_MAC), |_| in_ip)
    }

    /// Whether a packet for the box comes from an address that no other host has (RFC 1812 section 5.3.7). Who has none yet asks all for
    /// one by DHCP (RFC 2131 section 4.1): it could not get what the box answers to it alone.
    #[cold]
    fn has_martian_source(&self, mbuf: &Mbuf) -> bool {
        let meta = mbuf
            .meta()
            .filter(|meta| meta.flags.masked_equals(MetaFlags::IP.with(MetaFlags::V6), MetaFlags::IP));
        let addresses = meta.and_then(|meta| ipv4::addresses(mbuf.data(), meta.l3.into()));
        addresses.is_some_and(|(from, to)| {
            let asks_all = from.is_unspecified() && (to.is_broadcast() || to.is_multicast());
            is_martian(from.to_bits()) && !asks_all || self.own.contains(&from)
        })
    }

    /// Whether a packet is for the box itself, for a group, or no IPv4.
    #[inline(always)]
    fn is_local(&self, frame: &[u8], meta: &Meta) -> bool {
        if !meta.flags.has(MetaFlags::IP) || meta.flags.has(MetaFlags::V6) {
            return true;
        }
        let Some((_, to)) = ipv4::addresses(frame, meta.l3.into()) else { return true };
        if self.dhcp && is_to(frame, meta, DHCP_CLIENT) {
            return true;
        }
        // Groups, what is reserved, and the broadcast: from 224.0.0.0 on.
        let is_of_many = to.octets()[0] >= 224;
        (is_of_many && (to.is_multicast() || to.is_broadcast()))
            || (self.own.contains(&to) && !(self.pcp && is_to(frame, meta, nat_pcp::SERVER_PORT)))
    }
}

/// Whether a packet is a datagram to a port.
#[inline(always)]
fn is_to(frame: &[u8], meta: &Meta, port: u16) -> bool {
    let to = usize::from(meta.l4) + 2;
    meta.protocol == protocol::UDP
        && meta.flags.has(MetaFlags::L4)
        && !meta.flags.has(MetaFlags::FRAGMENT)
        && frame.get(to..to + 2) == Some(&port.to_be_bytes())
}

impl ParseObserver for Validity {
    type Output = CheckResult;

    /// For whom a packet is, in Ethernet and in IP.
    #[inline(always)]
    fn observe(&self, frame: &[u8], meta: &Meta) -> CheckResult {
        let to = frame.first_chunk().copied().unwrap_or([0; 6]);
        let in_ip = if self.is_local(frame, meta) { CheckResult::Local } else { CheckResult::Good };
        if self.mac.is_none_or(|mac| mac == to) && to[0] & 1 == 0 {
            in_ip
        } else {
            self.of_another_mac(to, in_ip)
        }
    }
}

impl Element for Validity {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: KIND, takes: true, outputs: &OUTPUTS, drops: &DROPS, polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let mut found = [CheckResult::Good; dpdk::BURST];
        let mut all_good = true;
        batch.walk(|i, mbuf| {
            let its = self.verify(mbuf);
            all_good &= its == CheckResult::Good;
            if let Some(found) = found.get_mut(i) {
                *found = its;
            }
        });
        if all_good {
            return;
        }
        let mut found = found.iter();
        batch.filter_map(|mbuf| match found.next()? {
            CheckResult::Good => Some(mbuf),
            CheckResult::Local if self.has_martian_source(&mbuf) => {
                cx.count(MARTIAN_SOURCE, 1);
                None
            }
            CheckResult::Local => {
                cx.emit(LOCAL, mbuf);
                None
            }
            CheckResult::Broken(reason) => {
                cx.count((*reason).into(), 1);
                None
            }
        });
    }
}

const _: () = assert!(DROPS.len() < 256);
