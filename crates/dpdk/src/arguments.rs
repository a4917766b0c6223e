//! The arguments that drivers of DPDK's may be given, and what values: a driver trusts them, and reads memory at an address or writes
//! behind a packet if they say so.

/// What a value may be.
enum Value {
    /// A number in these bounds.
    Number(u32, u32),
    /// A power of two in these bounds.
    PowerOfTwo(u32, u32),
    /// The name of an interface.
    Interface,
    /// The path of a socket, as long as the system takes.
    Socket,
    /// The path of a file.
    File,
    /// A MAC address.
    Mac,
    /// A MAC address, or `fixed`.
    TapMac,
}

use Value::{File, Interface, Mac, Number, PowerOfTwo, Socket, TapMac};

const FLAG: Value = Number(0, 1);
/// Longest path of a socket (`sun_path`).
const PATH: usize = 107;
/// The longest frame without a tag that fits into a packet of every pool, bytes.
const FRAME: u32 = 1514;

/// By driver, what DPDK 22.11 and later know and needs no trust. `memif` and `af_packet` are ours and read their own.
const ALLOWED: [(&str, &[(&str, Value)]); 7] = [
    (
        "af_xdp",
        &[
            ("iface", Interface),
            ("start_queue", Number(0, 1023)),
            ("queue_count", Number(1, 1024)),
            ("shared_umem", FLAG),
            ("busy_budget", Number(0, 65_535)),
            ("force_copy", FLAG),
        ],
    ),
    ("null", &[("size", Number(14, FRAME)), ("copy", FLAG), ("no-rx", FLAG)]),
    (
        "pcap",
        &[
            ("rx_pcap", File),
            ("tx_pcap", File),
            ("rx_iface", Interface),
            ("rx_iface_in", Interface),
            ("tx_iface", Interface),
            ("iface", Interface),
            ("phy_mac", FLAG),
            ("infinite_rx", FLAG),
        ],
    ),
    ("ring", &[]),
    ("tap", &[("iface", Interface), ("mac", TapMac)]),
    (
        "vhost",
        &[
            ("iface", Socket),
            ("queues", Number(1, 128)),
            ("client", FLAG),
            ("iommu-support", FLAG),
            ("postcopy-support", FLAG),
            ("tso", FLAG),
            ("linear-buffer", FLAG),
            ("ext-buffer", FLAG),
            ("legacy-ol-flags", FLAG),
        ],
    ),
    (
        "virtio_user",
        &[
            ("path", Socket),
            ("mac", Mac),
            ("cq", FLAG),
            ("queue_size", PowerOfTwo(16, 32_768)),
            ("queues", Number(1, 8)),
            ("iface", Interface),
            ("server", FLAG),
            ("mrg_rxbuf", FLAG),
            ("in_order", FLAG),
            ("packed_vq", FLAG),
            ("speed", Number(0, 1_000_000)),
            ("vectorized", FLAG),
        ],
    ),
];

impl Value {
    /// What is wrong with a value.
    fn fault(&self, value: &str) -> Option<String> {
        let number = || value.parse::<u32>().ok().filter(|_| value.bytes().all(|b| b.is_ascii_digit()));
        let (good, wanted) = match self {
            Number(least, most) => (
                number().is_some_and(|n| (*least..=*most).contains(&n)),
                format!("a number from {least} to {most}"),
            ),
            PowerOfTwo(least, most) => (
                number().is_some_and(|n| n.is_power_of_two() && (*least..=*most).contains(&n)),
                format!("a power of two from {least} to {most}"),
            ),
            Interface => (
                (1..16).contains(&value.len()) && !value.contains(['/', ':']),
                "an interface name of 1 to 15 characters".to_owned(),
            ),
            Socket => ((1..=PATH).contains(&value.len()), format!("a path of 1 to {PATH} characters")),
            File => (!value.is_empty(), "a path".to_owned()),
            Mac => (is_mac(value), "a MAC address".to_owned()),
            TapMac => (value == "fixed" || is_mac(value), "a MAC address or fixed".to_owned()),
        };
        (!good).then(|| format!("{value:?} is not {wanted}"))
    }
}

fn is_mac(text: &str) -> bool {
    let mut bytes = 0;
    text.split(':').all(|byte| {
        bytes += 1;
        byte.len() == 2 && byte.bytes().all(|b| b.is_ascii_hexdigit())
    }) && bytes == 6
}

/// What is wrong with the arguments of a driver of DPDK's, named without what stands around its name.
pub(crate) fn check(kind: &str, arguments: &str) -> Result<(), String> {
    let Some((_, allowed)) = ALLOWED.iter().find(|(driver, _)| *driver == kind) else { return Ok(()) };
    let mut seen = Vec::new();
    for argument in arguments.split(',').filter(|argument| !argument.is_empty()) {
        let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
        let Some((_, wanted)) = allowed.iter().find(|(known, _)| *known == key) else {
            let known: Vec<&str> = allowed.iter().map(|(known, _)| *known).collect();
            let known = if known.is_empty() { "it has none".to_owned() } else { known.join(", ") };
            return Err(format!("{key} is no argument that {kind} may be given: {known}"));
        };
        if let Some(fault) = wanted.fault(value) {
            return Err(format!("{key} of {kind}: {fault}"));
        }
        // a file or an interface of each queue
        let repeats = kind == "pcap" && matches!(wanted, File | Interface);
        if seen.contains(&key) && !repeats {
            return Err(format!("{key} of {kind} is there twice"));
        }
        seen.push(key);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_would_trust_blindly_is_refused() {
        for (kind, arguments, said) in [
            ("ring", "internal=0x1234", "it has none"),
            ("ring", "nodeaction=r:0:ATTACH", "it has none"),
            ("null", "copy=1,size=70000", "14 to 1514"),
            ("null", "size=0x40", "14 to 1514"),
            ("null", "size=+64", "14 to 1514"),
            ("null", "size=13", "14 to 1514"),
            ("null", "size=1515", "14 to 1514"),
            ("null", "size=64,size=70000", "14 to 1514"),
            ("null", "size=64,size=65", "twice"),
            ("null", "size", "14 to 1514"),
            ("af_xdp", "iface=a,xdp_prog=/tmp/x.o", "start_queue"),
            ("af_xdp", "iface=../a", "interface name"),
            ("tap", "iface=t0,remote=eth0", "iface, mac"),
            ("tap", "iface=t0,mac=1:2", "MAC address or fixed"),
            ("virtio_user", "path=/run/v,queues=9", "1 to 8"),
            ("virtio_user", "path=/run/v,queue_size=100", "power of two"),
            ("virtio_user", "path=", "a path"),
            ("vhost", "iface=/run/v,queues=129", "1 to 128"),
            ("vhost", "iface=/run/v,nonsense=1", "queues"),
            ("pcap", "iface=nfqueue:1", "interface name"),
        ] {
            let why = check(kind, arguments).expect_err(arguments);
            assert!(why.contains(said), "{kind},{arguments}: {why}");
        }
    }

    #[test]
    fn what_carries_frames_may_be_given() {
        for (kind, arguments) in [
            ("ring", ""),
            ("null", "size=14,copy=1,no-rx=0"),
            ("null", "size=1514"),
            ("tap", "iface=t0,mac=fixed"),
            ("tap", "iface=t0,mac=02:00:00:00:00:0a"),
            ("virtio_user", "path=/run/v,server=1,queues=8,queue_size=256,mac=02:00:00:00:00:01,cq=1"),
            ("vhost", "iface=/run/v,queues=128,client=1,tso=1"),
            ("af_xdp", "start_queue=1,iface=w0,queue_count=2"),
            ("pcap", "rx_pcap=a.pcap,tx_pcap=b.pcap,infinite_rx=1"),
            ("pcap", "rx_pcap=a.pcap,rx_pcap=b.pcap,tx_iface=c,tx_iface=d"),
        ] {
            assert_eq!(check(kind, arguments), Ok(()), "{kind},{arguments}");
        }
        let longest = format!("iface=/{}", "s".repeat(PATH - 1));
        assert_eq!(check("vhost", &longest), Ok(()));
        assert!(check("vhost", &format!("{longest}s")).is_err());
    }
}
