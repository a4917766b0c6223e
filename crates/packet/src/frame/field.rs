//! Where the fields of a header are that can vary.

use super::layer::Layer;

/// A field within its layer. It lies in a window of two, four or eight bytes at an even place, because that is
/// how checksums see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    /// Its name in profiles.
    pub name: &'static str,
    /// Where its window begins.
    pub at: usize,
    /// Bytes in the window.
    pub width: u8,
    /// Bits of the window below the field.
    pub shift: u8,
    /// Bits in the field.
    pub bits: u8,
    /// How its values are written.
    pub form: Form,
}

/// How a field's values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As a number.
    Number,
    /// As an Ethernet address, or a number.
    Mac,
    /// As an IPv4 address, or a number.
    Ipv4,
    /// As an IPv6 address of which the lower half varies.
    Ipv6,
}

impl Field {
    /// The bits of the window that are the field's.
    pub fn mask(&self) -> u64 {
        (u64::MAX >> (64 - self.bits)) << self.shift
    }

    /// Its greatest value.
    pub fn max(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }
}

const fn field(name: &'static str, at: usize, width: u8, shift: u8, bits: u8, form: Form) -> Field {
    Field { name, at, width, shift, bits, form }
}

const fn number(name: &'static str, at: usize, width: u8, shift: u8, bits: u8) -> Field {
    field(name, at, width, shift, bits, Form::Number)
}

const ETHERNET: &[Field] =
    &[field("destination", 0, 8, 16, 48, Form::Mac), field("source", 6, 8, 16, 48, Form::Mac)];
const VLAN: &[Field] = &[number("id", 0, 2, 0, 12), number("priority", 0, 2, 13, 3)];
const MPLS: &[Field] =
    &[number("label", 0, 4, 12, 20), number("traffic_class", 0, 4, 9, 3), number("ttl", 0, 4, 0, 8)];
const ARP: &[Field] = &[
    number("operation", 6, 2, 0, 16),
    field("sender_mac", 8, 8, 16, 48, Form::Mac),
    field("sender", 14, 4, 0, 32, Form::Ipv4),
    field("target_mac", 18, 8, 16, 48, Form::Mac),
    field("target", 24, 4, 0, 32, Form::Ipv4),
];
const IPV4: &[Field] = &[
    number("dscp", 0, 2, 2, 6),
    number("ecn", 0, 2, 0, 2),
    number("identification", 4, 2, 0, 16),
    number("ttl", 8, 2, 8, 8),
    number("protocol", 8, 2, 0, 8),
    field("source", 12, 4, 0, 32, Form::Ipv4),
    field("destination", 16, 4, 0, 32, Form::Ipv4),
];
const IPV6: &[Field] = &[
    number("dscp", 0, 4, 22, 6),
    number("ecn", 0, 4, 20, 2),
    number("flow_label", 0, 4, 0, 20),
    number("hop_limit", 6, 2, 0, 8),
    number("source_prefix", 8, 8, 0, 64),
    field("source", 16, 8, 0, 64, Form::Ipv6),
    number("destination_prefix", 24, 8, 0, 64),
    field("destination", 32, 8, 0, 64, Form::Ipv6),
];
const UDP: &[Field] = &[number("source_port", 0, 2, 0, 16), number("destination_port", 2, 2, 0, 16)];
const TCP: &[Field] = &[
    number("source_port", 0, 2, 0, 16),
    number("destination_port", 2, 2, 0, 16),
    number("sequence", 4, 4, 0, 32),
    number("acknowledgment", 8, 4, 0, 32),
    number("flags", 12, 2, 0, 8),
    number("window", 14, 2, 0, 16),
];
const ICMP: &[Field] = &[
    number("type", 0, 2, 8, 8),
    number("code", 0, 2, 0, 8),
    number("identifier", 4, 2, 0, 16),
    number("sequence", 6, 2, 0, 16),
];
const GRE_KEY: &[Field] = &[number("key", 4, 4, 0, 32)];
const GRE_SEQUENCE: &[Field] = &[number("sequence", 4, 4, 0, 32)];
const GRE_BOTH: &[Field] = &[number("key", 4, 4, 0, 32), number("sequence", 8, 4, 0, 32)];
const VXLAN: &[Field] = &[number("vni", 4, 4, 8, 24)];

/// The fields of `layer` that can vary. A payload has one at every even place, see [`payload`].
pub(super) fn fields(layer: &Layer) -> &'static [Field] {
    match layer {
        Layer::Ethernet(_) => ETHERNET,
        Layer::Vlan(_) => VLAN,
        Layer::Mpls(_) => MPLS,
        Layer::Arp(_) => ARP,
        Layer::Ipv4(_) => IPV4,
        Layer::Ipv6(_) => IPV6,
        Layer::Udp(_) => UDP,
        Layer::Tcp(_) => TCP,
        Layer::Icmp(_) => ICMP,
        Layer::Gre(gre) => match (gre.key, gre.sequence) {
            (Some(_), Some(_)) => GRE_BOTH,
            (Some(_), None) => GRE_KEY,
            (None, Some(_)) => GRE_SEQUENCE,
            (None, None) => &[],
        },
        Layer::Vxlan(_) => VXLAN,
        Layer::Payload(_) => &[],
    }
}

/// The four bytes of a payload from `at` on, which must be even.
pub(super) fn payload(at: usize) -> Option<Field> {
    at.is_multiple_of(2).then(|| number("payload", at, 4, 0, 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_fit_their_windows() {
        for field in [ETHERNET, VLAN, MPLS, ARP, IPV4, IPV6, UDP, TCP, ICMP, GRE_BOTH, VXLAN].concat() {
            assert!(field.at % 2 == 0 && [2, 4, 8].contains(&field.width), "{field:?}");
            assert!(field.shift + field.bits <= field.width * 8, "{field:?}");
            assert_eq!(field.mask() >> field.shift, field.max());
        }
    }
}
