//! Which work each port does by itself, and which is done in software.

use crate::queue_pairs::QueuePairs;
use dpdk::{Device, Offloads, PortInfo, TxWork};
use packet::frame::{Carried, ChecksumOffload, Segmentation};
use packet::tcp::TsoLimits;
use profile::{Offload, Port, Role};
use run::SetupError;
use std::collections::BTreeMap;

/// What becomes of a port's frames here.
#[derive(Debug, Clone, Copy, Default)]
pub struct Use {
    /// Streams send frames that are to be segmented.
    pub segments: bool,
    /// What it receives is measured as it comes.
    pub direct: bool,
    /// They come from a stack, and go there.
    pub stack: bool,
}

/// What a port is to do: what it is asked for in so many words, and else what it offers and what helps.
///
/// A virtual port's driver would do it on our own core. And of streams' checksums a port would save less than it costs to tell
/// it: they are kept ready, see [`packet::frame`].
pub fn choose(port: &Port, info: &PortInfo, wanted: Use, at: &str) -> Result<Offloads, SetupError> {
    let Use { segments, direct, stack } = wanted;
    let offers = Offloads::of(info);
    let listed = |work| port.offloads.setting(work) == Some(true);
    let helps = |work, helps| port.offloads.setting(work).unwrap_or(helps);
    let measures = port.role == Role::Generator;
    // What is done to frames on their way in comes after the port looked at them.
    let direct = measures && direct;
    let nic = matches!(port.device.parse(), Ok(Device::Pci(_)));
    let lacks = [
        (Offload::Checksum, offers.rx_checksum || offers.tx_checksum, "checksum"),
        (Offload::Vlan, offers.vlan_strip || offers.vlan_insert, "vlan"),
        (Offload::Segment, offers.tso, "segment"),
        (Offload::Timestamp, offers.rx_timestamp, "timestamp"),
    ];
    if let Some((.., name)) = lacks.into_iter().find(|(work, offered, _)| listed(*work) && !offered) {
        return Err(lacking(at, name, &info.offers));
    }
    let vlan = listed(Offload::Vlan);
    let tx_checksum = measures && offers.tx_checksum && helps(Offload::Checksum, stack && nic);
    let tso = measures && offers.tso && (segments || stack) && helps(Offload::Segment, nic);
    Ok(Offloads {
        rx_checksum: (direct || stack) && offers.rx_checksum && helps(Offload::Checksum, nic),
        tx_checksum,
        tx_ipv4_checksum: offers.tx_ipv4_checksum && (tx_checksum || tso),
        vlan_strip: offers.vlan_strip && vlan,
        vlan_insert: offers.vlan_insert && vlan,
        tso,
        rx_timestamp: direct && offers.rx_timestamp && helps(Offload::Timestamp, true),
    })
}

/// The port cannot do what is asked of it.
pub fn lacking(at: &str, name: &str, offers: &[&str]) -> SetupError {
    let offers = if offers.is_empty() { "nothing".to_owned() } else { offers.join(", ") };
    let what = format!("the port does not offer {name} (it offers {offers})");
    SetupError::new(
        "ND-92-16",
        format!("{at}.offloads"),
        what,
        "Leave it out, or write \"offloads\": \"auto\"",
    )
}

/// DPDK's tap driver segments by itself IPv4 alone, and takes a packet with its Ethernet header to be what its MTU allows for.
fn segments_like_a_tap(info: &PortInfo) -> bool {
    info.driver == "net_tap"
}

/// Whether the port segments such frames, which are handed to it in so many segments.
pub fn segments_in_port(
    does: Offloads,
    info: &PortInfo,
    mtu: usize,
    (segmentation, segments): (&Segmentation, usize),
) -> bool {
    let taken = !segments_like_a_tap(info) || !segmentation.carried.v6 && segmentation.packet_len(0) <= mtu;
    does.tso && segments <= info.tx_segments.into() && taken
}

/// Large frames of TCP that the port segments, with IP packets of up to `mtu` bytes behind `link` bytes, when it is handed pieces of `room` bytes.
/// `None`: it segments nothing.
pub fn tso_limits(
    does: Offloads,
    info: &PortInfo,
    (link, mtu): (usize, usize),
    room: usize,
) -> Option<TsoLimits> {
    /// With tags this still fits IP's length and a driver's.
    const LONGEST: usize = 65_000;
    let tap = segments_like_a_tap(info);
    let longest = LONGEST.min(room.saturating_mul(info.tx_segments.into()));
    let longest_segment = if tap { mtu } else { link + mtu };
    does.tso.then_some(TsoLimits { v6: !tap, longest, longest_segment })
}

/// Which checksums of frames are left to the port; `segmented`: which it may segment.
pub fn port_checksums(does: Offloads, segmented: bool) -> ChecksumOffload {
    match (does.tx_checksum || segmented && does.tso, does.tx_ipv4_checksum) {
        (true, true) => ChecksumOffload::All,
        (true, false) => ChecksumOffload::Transport,
        (false, _) => ChecksumOffload::None,
    }
}

/// What to tell the port of each frame.
pub fn tx_work(carried: &Carried, does: Offloads) -> TxWork {
    TxWork::checksums(&headers(carried), does.tx_ipv4_checksum)
}

/// And of each that it segments.
pub fn segments(segmentation: &Segmentation, does: Offloads) -> TxWork {
    TxWork::segments(&headers(&segmentation.carried), does.tx_ipv4_checksum, segmentation.segment)
}

fn headers(carried: &Carried) -> dpdk::Headers {
    dpdk::Headers {
        l2: carried.ip as u8,
        l3: (carried.l4 - carried.ip) as u16,
        l4: if carried.tcp { 20 } else { packet::udp::LEN as u8 },
        v6: carried.v6,
        tcp: carried.tcp,
    }
}

/// What groups leave to the port that they send on.
#[derive(Debug, Clone, Copy, Default)]
pub struct TxWorkShare {
    /// Groups.
    pub groups: usize,
    /// Those of which it makes checksums.
    pub checksums: usize,
    /// Those whose frames are segmented.
    pub segmented: usize,
    /// And by it.
    pub segments: usize,
}

/// Who does which work of a port: `port`, `software`, or both.
pub type Shares = BTreeMap<&'static str, &'static str>;

/// Of a port that does this.
pub fn shares(port: &Port, does: Offloads, lanes: QueuePairs, leaving: TxWorkShare) -> Shares {
    let by = |port: bool| if port { "port" } else { "software" };
    let by_some = |some, all| if some > 0 && some < all { "port and software" } else { by(some > 0) };
    let vlan = match (does.vlan_insert, does.vlan_strip) {
        (true, true) => "port",
        (false, false) => "software",
        _ => "port and software",
    };
    let mut shares = BTreeMap::from([("vlan", vlan)]);
    if lanes.count > 1 {
        shares.insert("spread", by(lanes.rss()));
    }
    if port.role == Role::Generator {
        shares.insert("checksums_sent", by_some(leaving.checksums, leaving.groups));
        if leaving.segmented > 0 {
            shares.insert("segments", by_some(leaving.segments, leaving.segmented));
        }
        shares.insert("checksums_received", by(does.rx_checksum));
        shares.insert("stamps", if does.rx_timestamp { "hardware" } else { "software" });
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::Flow;
    use packet::frame::{Devices, Layer, Recipe, Sizes, compose};
    use serde_json::{Value, json};

    fn port(device: &str, more: Value) -> Port {
        let mut port = json!({"name": "a", "device": device});
        port.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        serde_json::from_value(port).expect("a port")
    }

    const ALL: [&str; 11] = [
        "rx ipv4 checksum",
        "rx udp checksum",
        "rx tcp checksum",
        "rx vlan strip",
        "rx timestamp",
        "tx ipv4 checksum",
        "tx udp checksum",
        "tx tcp checksum",
        "tx vlan insert",
        "tso",
        "rss",
    ];

    fn info(driver: &str, offers: &[&'static str]) -> PortInfo {
        PortInfo {
            driver: driver.to_owned(),
            max_rx_queues: 1,
            max_tx_queues: 1,
            max_mtu: 1500,
            interface: 0,
            tx_segments: u16::MAX,
            offers: offers.to_vec(),
        }
    }

    /// Of a port that sends nothing to be segmented.
    fn chosen(device: &str, more: Value, offers: &[&'static str]) -> Result<Offloads, SetupError> {
        let port = port(device, more);
        let wanted = Use { direct: port.impair.is_none(), ..Use::default() };
        choose(&port, &info("", offers), wanted, "ports[0]")
    }

    const NIC: &str = "0000:03:00.0";

    #[test]
    fn what_helps_is_used_where_it_is_offered() {
        let none = Offloads::default();
        let stamps = Offloads { rx_timestamp: true, ..none };
        let of = |device, more, offers: &[&'static str]| chosen(device, more, offers).expect("a choice");
        assert_eq!(of(NIC, json!({}), &ALL), Offloads { rx_checksum: true, ..stamps });
        assert_eq!(of("tap:t0", json!({}), &ALL), stamps);
        assert_eq!(of("null", json!({}), &[]), none);
        assert_eq!(of(NIC, json!({"offloads": "none"}), &ALL), none);
        // Frames that change, or wait, after the port had them.
        assert_eq!(of(NIC, json!({"impair": {}}), &ALL), none);
        assert_eq!(of(NIC, json!({"role": "reflector"}), &ALL), none);
    }

    #[test]
    fn what_is_listed_is_used_alone() {
        let of = |list: Value, offers: &[&'static str]| chosen("tap:t0", json!({"offloads": list}), offers);
        let checksums =
            Offloads { rx_checksum: true, tx_checksum: true, tx_ipv4_checksum: true, ..Offloads::default() };
        assert_eq!(of(json!(["checksum"]), &ALL).expect("a choice"), checksums);
        let sent = ["tx udp checksum", "tx tcp checksum"];
        assert_eq!(
            of(json!(["checksum"]), &sent).expect("a choice"),
            Offloads { tx_checksum: true, ..Offloads::default() }
        );
        assert_eq!(of(json!([]), &ALL).expect("a choice"), Offloads::default());
        for name in ["checksum", "vlan", "segment", "timestamp"] {
            let why = of(json!([name]), &["rss"]).expect_err("it does not offer it");
            assert_eq!((why.code, why.at.as_str()), ("ND-92-16", "ports[0].offloads"));
            assert!(why.what.contains(name) && why.what.contains("rss"), "{why}");
        }
    }

    #[test]
    fn who_sends_tso_limits_has_a_nic_segment_them_and_others_where_it_is_asked_for() {
        let of = |device, more, cuts| {
            let wanted = Use { segments: cuts, direct: true, stack: false };
            let does = choose(&port(device, more), &info("", &ALL), wanted, "ports[0]").expect("a choice");
            (does.tso, does.tx_ipv4_checksum, does.tx_checksum)
        };
        let (with, not) = ((true, true, false), (false, false, false));
        assert_eq!(of(NIC, json!({}), true), with);
        assert_eq!(of(NIC, json!({}), false), not);
        assert_eq!(of(NIC, json!({"offloads": "none"}), true), not);
        assert_eq!(of(NIC, json!({"offloads": ["vlan"]}), true), not);
        assert_eq!(of("tap:t0", json!({}), true), not);
        assert_eq!(of("tap:t0", json!({"offloads": ["segment"]}), true), with);
        assert_eq!(of("tap:t0", json!({"offloads": ["segment"]}), false), not);
        let does = Offloads { tso: true, tx_ipv4_checksum: true, ..Offloads::default() };
        assert_eq!(
            (port_checksums(does, true), port_checksums(does, false)),
            (ChecksumOffload::All, ChecksumOffload::None)
        );
        assert_eq!(
            port_checksums(Offloads { tx_ipv4_checksum: false, ..does }, true),
            ChecksumOffload::Transport
        );
    }

    #[test]
    fn a_stack_has_a_nic_do_all_and_others_what_is_listed() {
        let of = |device, more| {
            let wanted = Use { stack: true, ..Use::default() };
            choose(&port(device, more), &info("", &ALL), wanted, "ports[0]").expect("a choice")
        };
        let none = Offloads::default();
        let checksums = Offloads { rx_checksum: true, tx_checksum: true, tx_ipv4_checksum: true, ..none };
        assert_eq!(of(NIC, json!({})), Offloads { tso: true, ..checksums });
        assert_eq!(of(NIC, json!({"offloads": "none"})), none);
        assert_eq!(of("tap:t0", json!({})), none);
        assert_eq!(of("tap:t0", json!({"offloads": ["checksum"]})), checksums);
        assert_eq!(
            of("tap:t0", json!({"offloads": ["segment"]})),
            Offloads { tso: true, tx_ipv4_checksum: true, ..none }
        );
    }

    #[test]
    fn a_port_segments_what_its_driver_can() {
        let segmentation = |ip: Value, segment: u16| {
            let layers = json!([{"ethernet": {}}, ip, {"tcp": {"segment": segment}}]);
            let layers: Vec<Layer> = serde_json::from_value(layers).expect("layers");
            let address = |ip: Value| if ip.get("ipv6").is_some() { "[::1]:7" } else { "127.0.0.1:7" };
            let at = address(ip).parse().expect("an address");
            let flow = Flow { source_mac: [0; 6], destination_mac: [0; 6], source: at, destination: at };
            let (sizes, devices) = (Sizes::Cycle(vec![9000]), Devices::default());
            let recipe = Recipe {
                layers: &layers,
                vary: &[],
                sizes: &sizes,
                measured: false,
                flow: &flow,
                devices,
                seed: 0,
            };
            compose(&recipe).expect("a program").segmentation().expect("it is segmented")
        };
        let does = Offloads { tso: true, ..Offloads::default() };
        let on = |driver: &str, segmentation: Segmentation| {
            segments_in_port(does, &info(driver, &ALL), 1500, (&segmentation, 5))
        };
        let v4 = || json!({"ipv4": {}});
        assert!(on("net_tap", segmentation(v4(), 1446)) && !on("net_tap", segmentation(v4(), 1447)));
        assert!(!on("net_tap", segmentation(json!({"ipv6": {}}), 1000)));
        assert!(on("net_ice", segmentation(json!({"ipv6": {}}), 8000)));
        let (segmentation, nic) = (segmentation(v4(), 1000), info("net_ice", &ALL));
        assert!(!segments_in_port(Offloads::default(), &nic, 1500, (&segmentation, 5)));
        assert!(!segments_in_port(
            does,
            &PortInfo { tx_segments: 4, ..nic.clone() },
            1500,
            (&segmentation, 5)
        ));
        let large = |info: &PortInfo| tso_limits(does, info, (18, 1500), 2048);
        let tap = TsoLimits { v6: false, longest: 65_000, longest_segment: 1500 };
        assert_eq!(large(&info("net_tap", &ALL)), Some(tap));
        assert_eq!(large(&nic), Some(TsoLimits { v6: true, longest_segment: 1518, ..tap }));
        let few = large(&PortInfo { tx_segments: 4, ..nic.clone() }).expect("it segments");
        assert_eq!(few.longest, 4 * 2048);
        assert_eq!(tso_limits(Offloads::default(), &nic, (18, 1500), 2048), None);
    }

    #[test]
    fn who_does_what_is_said() {
        let does = Offloads { vlan_strip: true, tx_checksum: true, ..Offloads::default() };
        let lanes = |count| QueuePairs { count, rx: 1, tx: 1 };
        let leaving = TxWorkShare { groups: 3, checksums: 1, segmented: 1, segments: 1 };
        let said = shares(&port(NIC, json!({})), does, lanes(2), leaving);
        let told = |key| said.get(key).copied();
        assert_eq!(told("checksums_sent"), Some("port and software"));
        assert_eq!((told("checksums_received"), told("segments")), (Some("software"), Some("port")));
        assert_eq!((told("vlan"), told("stamps")), (Some("port and software"), Some("software")));
        assert_eq!(told("spread"), Some("software"));
        let reflector = shares(
            &port(NIC, json!({"role": "reflector"})),
            Offloads::default(),
            lanes(1),
            TxWorkShare::default(),
        );
        assert_eq!(reflector, BTreeMap::from([("vlan", "software")]));
    }
}
