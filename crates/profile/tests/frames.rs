//! Frames are composed when a profile is read: what no run could send is refused before one begins.

use serde_json::{Value, json};

/// A stream to `target` whose group has `keys` besides.
fn profile(target: &str, keys: Value) -> Value {
    let mut group = json!({"name": "s", "target": target, "model": {"stream": {"rate": "1000/s"}}});
    keys.as_object().into_iter().flatten().for_each(|(key, value)| group[key] = value.clone());
    json!({
        "name": "frames",
        "transport": {"dpdk": {"ports": [
            {"name": "a", "device": "pair:x", "ip": "10.1.0.1"},
            {"name": "b", "device": "pair:x", "ip": "10.1.0.2", "role": "reflector"}
        ]}},
        "groups": [group]
    })
}

/// Code and place of the one fault, if there is one.
fn fault(profile: &Value) -> Option<String> {
    let errors = profile::load(&profile.to_string()).err()?;
    assert!(errors.len() == 1 && !errors[0].fix.is_empty(), "{errors:#?}");
    Some(format!("{} {}", errors[0].code, errors[0].at))
}

fn layers(keys: &[&str]) -> Value {
    keys.iter().map(|key| json!({*key: {}})).collect()
}

#[test]
fn frames_that_cannot_be_made_are_refused_by_name() {
    let tcp = layers(&["ethernet", "ipv4", "tcp"]);
    let size = |bytes: u32| json!({"fixed": format!("{bytes}B")});
    let vary = |field: &str, count: u32| json!([{"field": field, "change": {"increment": {"from": 1, "count": count}}}]);
    let between =
        |from: u32, to: u32| json!({"random": {"from": format!("{from}B"), "to": format!("{to}B")}});
    let vlan = |id: u32| json!([{"ethernet": {}}, {"vlan": {"id": id}}, {"ipv4": {}}, {"udp": {}}]);
    let arp = json!([{"ethernet": {}}, {"arp": {"sender": "10.1.0.1", "target": "10.1.0.2"}}]);
    // each that just passes beside one that just fails
    for (good, bad, place) in [
        (json!({"layers": tcp}), json!({"layers": layers(&["ipv4", "udp"])}), "layers[0].ipv4"),
        (json!({"layers": tcp, "size": size(76)}), json!({"layers": tcp, "size": size(74)}), "size"),
        (json!({"size": size(16384)}), json!({"size": size(16385)}), "size"),
        (json!({"size": between(64, 16384)}), json!({"size": between(63, 128)}), "size"),
        (json!({"size": between(64, 128)}), json!({"size": between(64, 16385)}), "size"),
        (json!({"layers": vlan(4095)}), json!({"layers": vlan(4096)}), "layers[1].vlan.id"),
        (
            json!({"vary": vary("udp.source_port", 65535)}),
            json!({"vary": vary("udp.source_port", 65536)}),
            "vary[0].change.increment.count",
        ),
        (json!({"vary": vary("ipv4.source", 9)}), json!({"vary": vary("ipv4.colour", 9)}), "vary[0].field"),
        (json!({"layers": arp, "measured": false}), json!({"layers": arp}), "layers[1].arp"),
    ] {
        let fault = |frame: &Value| fault(&profile("udp://10.1.0.2:9", json!({"frame": frame})));
        assert_eq!(fault(&good), None, "{good}");
        assert_eq!(fault(&bad), Some(format!("ND-104-07 groups[0].frame.{place}")), "{bad}");
    }
}

#[test]
fn a_plain_group_is_composed_too() {
    let sized = |size: &str| {
        let model = json!({"stream": {"rate": "1/s", "size": size}});
        fault(&profile("udp://10.1.0.2:9", json!({"model": model})))
    };
    assert_eq!(sized("16338B"), None);
    assert_eq!(sized("16339B").as_deref(), Some("ND-104-07 groups[0].model.stream.size"));
    // Layers make the smallest payload too small for the signature, and that is said of the payload.
    let group = json!({"frame": {"layers": layers(&["ethernet", "vlan", "ipv4", "gre", "ipv4", "udp"])}});
    let mut tight = profile("udp://10.1.0.2:9", group);
    tight["groups"][0]["model"]["stream"]["size"] = json!("20B");
    assert_eq!(fault(&tight).as_deref(), Some("ND-104-07 groups[0].model.stream.size"));
}

#[test]
fn addresses_that_only_a_run_knows_stand_for_themselves() {
    let six = json!([{"ethernet": {}}, {"ipv6": {"source": "fd09::1"}}, {"udp": {}}]);
    let to = |target: &str, layers: &Value| fault(&profile(target, json!({"frame": {"layers": layers}})));
    assert_eq!(to("udp://[fd09::2]:9", &six), None);
    let refused = Some("ND-104-07 groups[0].frame.layers[1].ipv6.destination".to_owned());
    assert_eq!(to("udp://10.1.0.2:9", &six), refused);
    // A name may have addresses of both kinds.
    assert_eq!(to("udp://host.example:9", &six), None);
    assert_eq!(to("udp://host.example:9", &layers(&["ethernet", "ipv4", "udp"])), None);
    // The port's own address is known, and is of the other kind.
    let open = layers(&["ethernet", "ipv6", "udp"]);
    let refused = Some("ND-104-07 groups[0].frame.layers[1].ipv6.source".to_owned());
    assert_eq!(to("udp://[fd09::2]:9", &open), refused);
    let mut many =
        profile("udp://[fd09::2]:9", json!({"frame": {"layers": open}, "source": ["fd09::11-fd09::19"]}));
    assert_eq!(fault(&many), None);
    // Sockets make their own frames.
    many["transport"] = json!({"sockets": {}});
    assert_eq!(fault(&many).as_deref(), Some("ND-104-07 groups[0].frame"));
}
