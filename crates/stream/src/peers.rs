//! Where a group's frames go on the link: the address of the peer, or of the gateway to it.

use crate::frames;
use dataplane::ports::OpenPort;
use element::arp_nd;
use element::interface_addr::AddressQuery;
use packet::Mac;
use packet::ethernet::Tags;
use profile::{Group, parse_mac};
use run::SetupError;
use run::plan::GroupPlan;
use std::net::IpAddr;
use std::time::Duration;

/// How long a peer's address is asked for.
const PATIENCE: Duration = Duration::from_secs(3);

fn unknown(at: String, what: String, fix: &str) -> SetupError {
    SetupError::new("ND-92-13", at, what, fix)
}

/// The tags that the port puts before the group's frames: only before those that say nothing of what they are.
pub fn tags(group: &Group, port: &OpenPort<'_>) -> Tags {
    match &group.frame {
        Some(frame) if !frame.layers.is_empty() || frame.replay.is_some() => Tags::NONE,
        _ => port.addrs.bare().tags,
    }
}

/// The Ethernet address that a group's frames go to.
pub fn find(
    index: usize,
    (group, plan): (&Group, &GroupPlan),
    on: usize,
    ports: &mut [OpenPort<'_>],
) -> Result<Mac, SetupError> {
    if frames::names_peer(group) {
        return Ok([0; 6]);
    }
    let settings = ports[on].settings;
    if let Some(mac) = settings.peer_mac.as_deref().and_then(parse_mac) {
        return Ok(mac);
    }
    let at = format!("transport.dpdk.ports[{on}]");
    let hop = next_hop(settings, plan.address().ip(), &at);
    let own = ports[on].addrs.bare().tags;
    // Ports of ours do not answer yet: they need not be asked.
    let is_peer = |other: &&OpenPort<'_>| {
        let cable = settings.device.starts_with("pair:") && other.settings.device == settings.device;
        let same = hop.as_ref().is_ok_and(|hop| other.addrs.owns(*hop)) && other.addrs.bare().tags == own;
        other.index != on && (cable || same)
    };
    if let Some(other) = ports.iter().find(is_peer) {
        return Ok(other.addrs.bare().mac);
    }
    let hop = hop?;
    let layers = group.frame.as_ref().map_or(&[][..], |frame| &frame.layers);
    let tags = match packet::frame::tags(layers) {
        _ if layers.is_empty() => own,
        Some(tags) => tags,
        None => {
            let what =
                format!("nobody is asked behind more than two VLAN tags (groups[{index}].frame.layers)");
            return Err(unknown(
                format!("{at}.peer_mac"),
                what,
                "Give peer_mac: the address of the next hop",
            ));
        }
    };
    let port = &mut ports[on];
    let Some(own) = port.addrs.matching_family(hop) else {
        let kind = if hop.is_ipv4() { "IPv4" } else { "IPv6" };
        let what = format!("the port needs an {kind} address to ask for its peer's");
        return Err(unknown(
            format!("{at}.ip"),
            what,
            "Give ip, an address in the target's network, or peer_mac",
        ));
    };
    let (query, queues) = (AddressQuery { ip: hop, tags }, (&mut port.rx[..], &mut port.tx[0]));
    arp_nd::resolve((&port.addrs, own), &query, queues, &port.pool, PATIENCE).ok_or_else(|| {
        let target = plan.address().ip();
        let (who, fix) = match hop == target {
            true => (
                format!("{target}"),
                "Check that the other side is up and in the same network and VLAN, or give peer_mac",
            ),
            false => (
                format!("{hop}, the gateway to {target},"),
                "Check that the router is up and in the same network and VLAN, or give peer_mac",
            ),
        };
        let what = format!("nobody answered for {who} on port {} (groups[{index}].target)", settings.name);
        unknown(at, what, fix)
    })
}

/// Whose Ethernet address leads to `target`.
fn next_hop(port: &profile::Port, target: IpAddr, at: &str) -> Result<IpAddr, SetupError> {
    let Some(own) = port.ip.matching_family(target).filter(|own| own.prefix.is_some()) else {
        return Ok(target);
    };
    if own.is_near(target) {
        return Ok(target);
    }
    port.gateway.0.iter().find(|gateway| gateway.is_ipv4() == target.is_ipv4()).copied().ok_or_else(|| {
        let what = format!("{target} is outside the network of {own}, and the port has no gateway");
        let fix = "Give gateway, the router's address in that network, or peer_mac";
        unknown(format!("{at}.gateway"), what, fix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn hop(port: Value, target: &str) -> Result<IpAddr, SetupError> {
        let mut all = json!({"name": "a", "device": "null"});
        port.as_object().expect("keys").iter().for_each(|(key, value)| all[key] = value.clone());
        let port: profile::Port = serde_json::from_value(all).expect("a port");
        next_hop(&port, target.parse().expect("an address"), "transport.dpdk.ports[0]")
    }

    #[test]
    fn what_is_outside_the_network_is_behind_the_gateway() {
        let is = |port: Value, target: &str, expected: &str| {
            assert_eq!(hop(port, target).expect(target), expected.parse::<IpAddr>().expect("an address"));
        };
        let v4 = || json!({"ip": "10.0.0.1/24", "gateway": "10.0.0.254"});
        is(v4(), "10.0.0.2", "10.0.0.2");
        is(v4(), "10.0.0.254", "10.0.0.254");
        is(v4(), "10.0.1.2", "10.0.0.254");
        is(json!({"ip": "fd00::1/64", "gateway": "fd00::ffff"}), "2001:db8::1", "fd00::ffff");
        let both = || json!({"ip": ["10.0.0.1/24", "fd00::1/64"], "gateway": ["fd00::ffff", "10.0.0.254"]});
        is(both(), "10.0.1.2", "10.0.0.254");
        is(both(), "2001:db8::1", "fd00::ffff");
        // Without a prefix everybody is near.
        is(json!({"ip": "10.0.0.1"}), "192.0.2.1", "192.0.2.1");
        let why = hop(json!({"ip": "10.0.0.1/24"}), "10.0.1.2").expect_err("no gateway");
        assert_eq!((why.code, why.at.as_str()), ("ND-92-13", "transport.dpdk.ports[0].gateway"));
        assert!(why.what.contains("10.0.1.2") && why.what.contains("10.0.0.1/24"), "{why}");
    }
}
