"""What each reason to drop a packet in a NAT means, by the kind of element that has it."""

from __future__ import annotations

EVERYWHERE = {
    "refused": "the next element, or the port, had no room",
    "overflow": "more came for one output than fits into a batch",
}
"""What any element may have besides."""
PARSER = {
    "truncated": "it ends within a header",
    "not_ip": "its headers cannot be read",
    "bad_header": "a header cannot be as it is",
    "bad_length": "a length does not fit the frame",
    "bad_checksum": "a checksum is wrong",
    "fragment": "a fragment that cannot be read",
    "not_udp": "it is not UDP",
    "no_signature": "it has no signature of a test stream",
    "scattered": "it is longer than a buffer",
}
PORTS = {
    "rx": {
        "port_dropped": "a worker fetched it too late from its port, or there was no memory for it",
        "port_errors": "its port found it damaged",
    },
    "tx": {"port_dropped": "its port cannot send it as it is"},
}
"""What the ports themselves count, at their queues."""
KINDS = {
    "validity": PARSER
    | {
        "other_mac": "to another Ethernet address than the port's: a switch flooded it",
        "martian_source": "to the box, from an address that no other host has",
    },
    "nat": {
        "not_ipv4": "it is not IPv4",
        "not_inside": "its sender is no subscriber: see `subscribers`",
        "not_bound": "its sender has no lease",
        "spoofed": "from another Ethernet address than its sender's lease is for",
        "table_full": "there are as many subscribers as there may be: see `limits.subscribers`",
        "martian_source": "its sender's address is the box's own, a network's or a broadcast address",
        "reverse_path": "no route leads to its sender by the inside port: see `reverse_path`",
    },
    "conntrack": {
        "truncated": "it ends within a header",
        "not_ipv4": "it is not IPv4",
        "malformed": "its headers or lengths cannot be",
        "bad_checksum": "a checksum is wrong",
        "protocol": "a protocol other than TCP, UDP and ICMP",
        "icmp_type": "an ICMP message that is not translated",
        "icmp_quote": "an ICMP error whose quoted packet cannot be read",
        "icmp_nested": "an ICMP error about an ICMP error",
        "icmp_no_session": "an ICMP error about a packet of no session",
        "ttl": "TTL or hop limit expired",
        "not_inside": "its sender is no subscriber: see `subscribers`",
        "no_mapping": "from the outside, to a port that nobody has",
        "filtered": "from the outside, by somebody whom the subscriber did not send to",
        "other_mapping": "from the outside, to an endpoint in a session with the sender by another mapping",
        "not_syn": "a TCP segment that begins no connection",
        "sessions_full": "there are as many sessions as there may be: see `limits.sessions`",
        "subscriber_sessions": "a subscriber has all its sessions: see `limits.sessions_per_subscriber`",
        "subscribers_full": "there are as many subscribers as there may be: see `limits.subscribers`",
        "subscriber_ports": "a subscriber has used up its ports: see `ports.blocks_per_subscriber`",
        "pool_exhausted": "no address has a free port block: see `pool`",
        "no_public_address": "its site has no public address (yet)",
        "inside_overlap": "not translated, and to an address that subscribers of several VLANs have",
        "fragments_full": "more packets in fragments than are kept",
        "fragment_tiny": "a fragment that overlaps headers, or a first one without them",
        "fragment_of_dropped": "the first fragment of its packet was dropped",
        "fragment_timeout": "the first fragment of its packet did not come in time",
        "too_big": "longer than the next link takes, with DF: its sender is told; see `mtu`",
        "martian_source": "from an address that no host has",
        "spoofed_source": "from the outside, from an address of the box, the pool or a subscriber",
        "martian_destination": "from a subscriber, to an address that nothing is forwarded to",
        "own_destination": "from a subscriber, to the box itself, past what answers for it",
        "inside_destination": "from a subscriber, to the subscribers' space: see `outside_prefixes`",
        "ip_options": "it has a source route, or other IP options: see `ip_options`",
        "land": "from an endpoint to its own mapping: it would answer itself",
        "acl": "a rule forbids it: see `acl`",
        "awaiting_arp": "its subscriber is being asked for by ARP, and a later packet waits in its place",
        "no_next_hop": "the gateway, or the subscriber, does not answer ARP",
        "no_room": "no room for its VLAN tags",
        "unknown_port": "from a port that is not the NAT's",
        "not_bound": "it did not come through the NAT table",
        "pcp_limited": "a subscriber asked its PCP server too often, or faster than answers can be sent",
        "pcp_noise": "sent to the PCP server, and no request",
        "standby": "the other NAT of the pair translates",
    },
    "nat-host": {
        "not_for_us": "for the box or everybody, and nothing that it answers",
        "segmented": "it is longer than a buffer",
        "standby": "the other NAT of the pair answers",
        "martian_source": "to the box, from a network or broadcast address",
        "spoofed_source": "to the box from outside, by an address of a subscriber, the pool or the inside",
        "not_inside": "to the box from inside, by no subscriber and nobody on the link: see `subscribers`",
        "own_destination": "from inside, to `outside.ip`, where nothing but echo is answered: see `host`",
        "fragmented": "to the box in fragments, which it does not put together: see `host`",
    },
    "nat-sites": {
        "dhcp_ignored": "a DHCP message that nothing is done about: forged, late, or not acceptable",
        "spoofed_source": "to the box from outside, from an address that a site has",
        "address_conflict": "an ARP message of a host that says to have a site's address",
    },
    "police": {"policed": "beyond the rate to the host's kernel, or from it: see `host.rate`"},
    "vlan": {
        "untagged": "it has fewer tags than the box's VLAN",
        "truncated": "it ends within its Ethernet header",
        "no_room": "no room for its VLAN tags",
        "unknown_vlan": "a VLAN that is not named",
    },
}


def meaning(kind: str, reason: str) -> str:
    """In one line; empty where it is not known, as of elements that somebody has added."""
    return (PORTS | KINDS).get(kind, {}).get(reason) or EVERYWHERE.get(reason, "")
