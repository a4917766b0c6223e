//! Which work each port does by itself, and which is done in software.

use super::lanes::Lanes;
use crate::transport::Unready;
use dpdk::{Device, Offloads, PortInfo, TxWork};
use packet::frame::{Carried, Left};
use profile::{Offload, Port, Role};
use std::collections::BTreeMap;

/// What a port is to do: what it is asked for in so many words, and else what it offers and what helps.
///
/// A virtual port's driver would do it on our own core. And of checksums that are sent, a port would save less than it
/// costs to tell it: they are kept ready, see [`packet::frame`].
pub fn choose(port: &Port, info: &PortInfo, at: &str) -> Result<Offloads, Unready> {
    let offers = Offloads::of(info);
    let listed = |work| port.offloads.wants(work) == Some(true);
    let helps = |work, helps| port.offloads.wants(work).unwrap_or(helps);
    let measures = port.role == Role::Generator;
    // What is done to frames on their way in comes after the port looked at them.
    let direct = measures && port.impair.is_none();
    let nic = matches!(port.device.parse(), Ok(Device::Pci(_)));
    let lacks = [
        (Offload::Checksum, offers.rx_checksum || offers.tx_checksum, "checksum"),
        (Offload::Vlan, offers.vlan_strip || offers.vlan_insert, "vlan"),
        (Offload::Timestamp, offers.rx_timestamp, "timestamp"),
    ];
    if let Some((.., name)) = lacks.into_iter().find(|(work, offered, _)| listed(*work) && !offered) {
        return Err(lacking(at, name, &info.offers));
    }
    let vlan = listed(Offload::Vlan);
    Ok(Offloads {
        rx_checksum: direct && offers.rx_checksum && helps(Offload::Checksum, nic),
        tx_checksum: measures && offers.tx_checksum && listed(Offload::Checksum),
        tx_ipv4_checksum: measures
            && offers.tx_checksum
            && offers.tx_ipv4_checksum
            && listed(Offload::Checksum),
        vlan_strip: offers.vlan_strip && vlan,
        vlan_insert: offers.vlan_insert && vlan,
        tso: false,
        rx_timestamp: direct && offers.rx_timestamp && helps(Offload::Timestamp, true),
    })
}

/// The port cannot do what is asked of it.
pub fn lacking(at: &str, name: &str, offers: &[&str]) -> Unready {
    let offers = if offers.is_empty() { "nothing".to_owned() } else { offers.join(", ") };
    let what = format!("the port does not offer {name} (it offers {offers})");
    Unready::new("ND-92-16", format!("{at}.offloads"), what, "Leave it out, or write \"offloads\": \"auto\"")
}

/// Which checksums of frames are left to the port.
pub fn left(does: Offloads) -> Left {
    match (does.tx_checksum, does.tx_ipv4_checksum) {
        (true, true) => Left::All,
        (true, false) => Left::Transport,
        (false, _) => Left::Nothing,
    }
}

/// What to tell the port of each frame.
pub fn work(carried: &Carried, does: Offloads) -> TxWork {
    let headers = dpdk::Headers {
        l2: carried.ip as u8,
        l3: (carried.l4 - carried.ip) as u16,
        l4: if carried.tcp { 20 } else { packet::udp::LEN as u8 },
        v6: carried.v6,
        tcp: carried.tcp,
    };
    TxWork::checksums(&headers, does.tx_ipv4_checksum)
}

/// Who does which work of a port: `port`, `software`, or both.
pub type Shares = BTreeMap<&'static str, &'static str>;

/// Of a port that does this. `left` of `all` groups that it sends leave their checksums to it.
pub fn shares(port: &Port, does: Offloads, lanes: Lanes, (left, all): (usize, usize)) -> Shares {
    let by = |port: bool| if port { "port" } else { "software" };
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
        let sent = if left > 0 && left < all { "port and software" } else { by(left > 0) };
        shares.insert("checksums_sent", sent);
        shares.insert("checksums_received", by(does.rx_checksum));
        shares.insert("stamps", if does.rx_timestamp { "hardware" } else { "software" });
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn chosen(device: &str, more: Value, offers: &[&'static str]) -> Result<Offloads, Unready> {
        let info = PortInfo {
            driver: String::new(),
            max_rx_queues: 1,
            max_tx_queues: 1,
            max_mtu: 1500,
            interface: 0,
            offers: offers.to_vec(),
        };
        choose(&port(device, more), &info, "ports[0]")
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
        for (list, name) in [("checksum", "checksum"), ("vlan", "vlan"), ("timestamp", "timestamp")] {
            let why = of(json!([list]), &["rss"]).expect_err("it does not offer it");
            assert_eq!((why.code, why.at.as_str()), ("ND-92-16", "ports[0].offloads"));
            assert!(why.what.contains(name) && why.what.contains("rss"), "{why}");
        }
    }

    #[test]
    fn who_does_what_is_said() {
        let does = Offloads { vlan_strip: true, tx_checksum: true, ..Offloads::default() };
        let lanes = |count| Lanes { count, rx: 1, tx: 1 };
        let said = shares(&port(NIC, json!({})), does, lanes(2), (1, 2));
        let told = |key| said.get(key).copied();
        assert_eq!(told("checksums_sent"), Some("port and software"));
        assert_eq!(told("checksums_received"), Some("software"));
        assert_eq!((told("vlan"), told("stamps")), (Some("port and software"), Some("software")));
        assert_eq!(told("spread"), Some("software"));
        let reflector =
            shares(&port(NIC, json!({"role": "reflector"})), Offloads::default(), lanes(1), (0, 0));
        assert_eq!(reflector, BTreeMap::from([("vlan", "software")]));
    }
}
