//! Profiles of devices over DPDK: what they may ask for.

use profile::{Error, Profile, Role, Transport};

fn conflict(at: String, what: &str, fix: &str) -> Error {
    Error::new("ND-104-07", at, what, fix)
}

/// What is wrong with a profile whose devices run over DPDK; of others nothing.
pub fn check(profile: &Profile) -> Vec<Error> {
    match &profile.transport {
        Transport::Dpdk(dpdk) if profile.has_devices() => settings(dpdk),
        _ => Vec::new(),
    }
}

/// Workers that drive the devices or connections: each has a queue of each port.
pub fn workers(dpdk: &profile::Dpdk) -> usize {
    dpdk.ports.iter().map(|port| port.queues.into()).max().unwrap_or(1).max(1)
}

/// What is wrong with the settings.
pub fn settings(dpdk: &profile::Dpdk) -> Vec<Error> {
    let mut faults = Vec::new();
    if dpdk.has_graph() {
        let what = "devices with connections are no part of a graph of elements";
        let at = "transport.dpdk.elements".to_owned();
        faults.push(conflict(at, what, "Leave elements and edges out"));
    }
    let workers = workers(dpdk);
    if ![0, workers].contains(&dpdk.placement.len()) {
        let what = "each worker of devices with connections has a queue of each port";
        let at = "transport.dpdk.placement".to_owned();
        faults.push(conflict(at, what, "Name as many workers as queues, or leave placement out"));
    }
    for (i, port) in dpdk.ports.iter().enumerate() {
        let at = |key: &str| format!("transport.dpdk.ports[{i}].{key}");
        if port.role != Role::Generator {
            let what = "beside devices with connections a port has no role of its own";
            faults.push(conflict(at("role"), what, "Leave role out, or give the port to another run"));
        }
        if usize::from(port.queues) != workers {
            let what = "each worker of devices with connections has a queue of each port";
            faults.push(conflict(at("queues"), what, "Give all ports as many queues"));
        }
        if port.impair.is_some() || port.impair_timeline.is_some() {
            let what = "a port of devices with connections cannot be impaired here";
            let fix = "Impair the link to the server: netdyno impair, or a link of a topology";
            faults.push(conflict(at("impair"), what, fix));
        }
        if port.ip.is_empty() {
            let what = "devices with connections need an address to come from";
            let fix = "Give ip, an address in the target's network, as \"10.0.0.1/24\"";
            faults.push(conflict(at("ip"), what, fix));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn found(transport: &Value) -> Vec<String> {
        let dpdk = serde_json::from_value(transport.clone()).expect("right otherwise");
        settings(&dpdk).into_iter().map(|fault| fault.at).collect()
    }

    #[test]
    fn each_fault_is_named_with_its_place() {
        let port = |key: &str, value: Value| {
            let mut port = json!({"name": "a", "device": "null", "ip": "10.0.0.1/24"});
            port[key] = value;
            json!({"ports": [port]})
        };
        assert!(found(&port("mac", json!("02:00:00:00:00:01"))).is_empty());
        for (key, value) in [("ip", json!([])), ("impair", json!({}))] {
            assert_eq!(found(&port(key, value)), [format!("transport.dpdk.ports[0].{key}")]);
        }
        let mut two = port("queues", json!(1));
        two["placement"] = json!([{"elements": ["a.generator"]}, {"elements": ["a.receiver"]}]);
        assert_eq!(found(&two), ["transport.dpdk.placement"]);
        two["ports"][0]["queues"] = json!(2);
        assert!(found(&two).is_empty());
        let other = json!({"name": "b", "device": "null", "ip": "10.0.1.1/24"});
        two["ports"].as_array_mut().expect("ports").push(other);
        assert_eq!(found(&two), ["transport.dpdk.ports[1].queues"]);
    }
}
