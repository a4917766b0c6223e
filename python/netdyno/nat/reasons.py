"""Meaning of each drop reason of a NAT, by element kind."""

from __future__ import annotations

EVERYWHERE = {
    "refused": "no room in the next element or port",
    "overflow": "more packets for one output than a batch holds",
}
"""Reasons of every element."""
PARSER = {
    "truncated": "the packet ends within a header",
    "not_ip": "unreadable headers",
    "bad_header": "invalid header",
    "bad_length": "a length exceeds the frame",
    "bad_checksum": "wrong checksum",
    "fragment": "unreadable fragment",
    "not_udp": "not UDP",
    "no_signature": "no test-stream signature",
    "scattered": "longer than a buffer",
}
PORTS = {
    "rx": {
        "port_dropped": "receive queue full: the worker was too slow, or no buffer was free",
        "port_errors": "receive error at the port",
    },
    "tx": {"port_dropped": "the port cannot send this frame"},
}
"""Reasons of ports, counted at their queues."""
KINDS = {
    "validity": PARSER
    | {
        "other_mac": "destination MAC is not the port's: flooded by a switch",
        "martian_source": "addressed to the NAT host from an impossible source address",
    },
    "subscriber-table": {
        "not_ipv4": "not IPv4",
        "not_inside": "source is not a subscriber: see `subscribers`",
        "not_bound": "source has no lease",
        "spoofed": "source MAC differs from that of the lease",
        "table_full": "subscriber limit reached: see `limits.subscribers`",
        "martian_source": "source is the NAT's own, a network or a broadcast address",
        "reverse_path": "no route to the source through the inside port: see `reverse_path`",
    },
    "nat44": {
        "truncated": "the packet ends within a header",
        "not_ipv4": "not IPv4",
        "malformed": "invalid headers or lengths",
        "bad_checksum": "wrong checksum",
        "protocol": "a protocol other than TCP, UDP and ICMP",
        "icmp_type": "untranslatable ICMP type",
        "icmp_quote": "ICMP error with an unreadable quoted packet",
        "icmp_nested": "ICMP error about an ICMP error",
        "icmp_no_session": "ICMP error without a session",
        "ttl": "TTL or hop limit expired",
        "not_inside": "source is not a subscriber: see `subscribers`",
        "no_mapping": "inbound, without a mapping",
        "filtered": "inbound, from an endpoint that the subscriber has not sent to",
        "other_mapping": "inbound, but the sender's session uses another mapping",
        "not_syn": "TCP segment without a session that is not a SYN",
        "sessions_full": "session limit reached: see `limits.sessions`",
        "subscriber_sessions": "subscriber's session limit reached: see `limits.sessions_per_subscriber`",
        "subscribers_full": "subscriber limit reached: see `limits.subscribers`",
        "subscriber_ports": "the subscriber has no free port: see `ports.blocks_per_subscriber`",
        "pool_exhausted": "no address has a free port block: see `pool`",
        "no_public_address": "the site has no public address (yet)",
        "inside_overlap": "untranslated, to an address used in several VLANs",
        "fragments_full": "too many fragmented packets at a time",
        "fragment_tiny": "fragment overlaps headers, or first fragment without them",
        "fragment_of_dropped": "the first fragment of its packet was dropped",
        "fragment_timeout": "first fragment did not arrive in time",
        "too_big": "exceeds the next MTU with DF set; an ICMP error is sent; see `mtu`",
        "martian_source": "impossible source address",
        "spoofed_source": "inbound, from an address of the NAT, the pool or a subscriber",
        "martian_destination": "outbound, to an unroutable address",
        "own_destination": "outbound, to the NAT itself, for no service of it",
        "inside_destination": "outbound, to the subscribers' address space: see `outside_prefixes`",
        "ip_options": "source route or other IP options: see `ip_options`",
        "land": "from an endpoint to its own mapping",
        "acl": "denied by a rule: see `acl`",
        "awaiting_arp": "replaced by a later packet while ARP resolves the subscriber",
        "no_next_hop": "no ARP reply from the gateway or the subscriber",
        "no_room": "no room for its VLAN tags",
        "unknown_port": "received on a port that is not the NAT's",
        "not_bound": "bypassed the NAT table",
        "pcp_limited": "PCP request rate of the subscriber exceeded",
        "pcp_noise": "invalid PCP request",
        "standby": "the other NAT of the pair translates",
    },
    "nat-host": {
        "not_for_us": "to the NAT host or broadcast, for no service of it",
        "segmented": "longer than a buffer",
        "standby": "the other NAT of the pair answers",
        "martian_source": "to the NAT host, from a network or broadcast address",
        "spoofed_source": "to the NAT host from outside, from a subscriber, pool or inside address",
        "not_inside": "to the NAT host from inside, by neither subscriber nor link: see `subscribers`",
        "own_destination": "from inside to `outside.ip`, which answers only echo: see `host`",
        "fragmented": "fragment to the NAT host, which does not reassemble: see `host`",
    },
    "nat-sites": {
        "dhcp_ignored": "ignored DHCP message: forged, late or unacceptable",
        "spoofed_source": "to the NAT host from outside, from an address of a site",
        "address_conflict": "ARP from another host that claims a site's address",
    },
    "police": {"policed": "exceeds the rate to or from the host's kernel: see `host.rate`"},
    "vlan": {
        "untagged": "fewer VLAN tags than configured",
        "truncated": "the packet ends within its Ethernet header",
        "no_room": "no room for its VLAN tags",
        "unknown_vlan": "unknown VLAN",
    },
}


def meaning(kind: str, reason: str) -> str:
    """The meaning in one line; empty for unknown reasons, such as those of added elements."""
    return (PORTS | KINDS).get(kind, {}).get(reason) or EVERYWHERE.get(reason, "")
