//! The first stage of a NAT: only what is valid is translated, and what is for the box itself goes to the box.

use ::element::interface_addr::InterfaceAddrs;
use ::element::kind::{Build, ElementKind};
use dpdk::{Batch, Mbuf, Meta, MetaFlags};
use engine::{About, Cx, Element, Parser, parser};
use packet::ipv4;
use packet::layers::protocol;
use profile::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const KIND: &str = "validity";
const OUTPUTS: [&str; 2] = ["out", "local"];
const LOCAL: usize = 1;

/// Finds the headers of packets that come in by a port and verifies their checksums; what is broken is dropped by its fault.
/// IPv4 for others goes on. What is no IPv4, is for a group, or goes to an address of the port itself leaves by `local`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The port by which its packets come in.
    pub port: String,
    /// Verify checksums of TCP, UDP and ICMP, too. Default true; that of IPv4 headers always is.
    #[serde(default = "yes")]
    pub verify: bool,
    /// Let requests of PCP (RFC 6887), UDP to port 5351 of the port's own address, go on by `out` instead. Default false; true
    /// where the `conntrack` behind it has `pcp`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pcp: bool,
}

fn yes() -> bool {
    true
}

impl ElementKind for Options {
    const KIND: &'static str = KIND;
    const DROPS: &'static [&'static str] = &parser::DROPS;
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
        let parser = Parser::new(u16::try_from(number).unwrap_or(u16::MAX));
        let parser = if self.verify { parser.verifying() } else { parser };
        Ok(Box::new(Validity { parser, addrs: port.addrs.clone(), pcp: self.pcp }))
    }
}

/// Element: verifies packets, and tells those for the box from the others.
#[derive(Debug)]
struct Validity {
    parser: Parser,
    addrs: InterfaceAddrs,
    pcp: bool,
}

impl Validity {
    /// Whether a packet is for the box itself, for a group, or no IPv4.
    #[inline]
    fn is_local(&self, mbuf: &Mbuf) -> bool {
        let Some(meta) = mbuf.meta() else { return true };
        if !meta.flags.has(MetaFlags::IP) || meta.flags.has(MetaFlags::V6) {
            return true;
        }
        let Some((_, to)) = ipv4::addresses(mbuf.data(), meta.l3.into()) else { return true };
        let own = || self.addrs.own().iter().any(|own| own.ip == to);
        to.is_multicast() || to.is_broadcast() || own() && !(self.pcp && is_pcp(mbuf, &meta))
    }
}

/// Whether a packet to the box is a request to its PCP server.
fn is_pcp(mbuf: &Mbuf, meta: &Meta) -> bool {
    let to = usize::from(meta.l4) + 2;
    meta.protocol == protocol::UDP
        && meta.flags.has(MetaFlags::L4)
        && !meta.flags.has(MetaFlags::FRAGMENT)
        && mbuf.data().get(to..to + 2) == Some(&pcp::SERVER_PORT.to_be_bytes())
}

impl Element for Validity {
    fn about(&self) -> About {
        About { kind: KIND, takes: true, outputs: &OUTPUTS, drops: &parser::DROPS, polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        batch.filter_map(|mut mbuf| match self.parser.parse(&mut mbuf) {
            Err(reason) => {
                cx.count(reason, 1);
                None
            }
            Ok(()) if self.is_local(&mbuf) => {
                cx.emit(LOCAL, mbuf);
                None
            }
            Ok(()) => Some(mbuf),
        });
    }
}
