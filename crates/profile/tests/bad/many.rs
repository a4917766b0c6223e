//! Profiles that are too large in some way are refused before they are held, and those that name something twice.

use super::{dpdk, good, judge, with};
use serde_json::{Value, json};

/// The one fault, and how long its text is.
fn refused(text: &str) -> profile::Error {
    let mut errors = profile::load(text).expect_err("too much");
    assert_eq!(errors.len(), 1, "{errors:#?}");
    errors.remove(0)
}

#[test]
fn lists_end() {
    let many = |n: usize, one: Value| Value::from(vec![one; n]);
    let group = json!({"name": "g", "target": "web", "model": {"http": {}}});
    let threshold = json!({"metric": "sensors.loss", "max": 0});
    let port = json!({"name": "a", "device": "null"});
    let closed = |n| json!({"closed": {"stages": many(n, json!({"over": "0s", "devices": 1}))}});
    for (base, at, value, most) in [
        (good(), "/groups", many(200_000, group), 1000),
        (good(), "/thresholds", many(1001, threshold), 1000),
        (good(), "/groups/0/source", many(1001, json!("10.0.0.1")), 1000),
        (good(), "/groups/0/load", closed(10_001), 10_000),
        (good(), "/transport", json!({"sockets": {"cores": many(1025, json!(0))}}), 1024),
        (dpdk(), "/transport/dpdk/ports", many(33, port), 32),
        (dpdk(), "/groups/0/frame", json!({"layers": many(65, json!({"ethernet": {}}))}), 64),
    ] {
        let error = refused(&with(base, at, value));
        // a great many are too many values before they are too many groups
        assert_eq!(error.code, "ND-104-05", "{error}");
        assert!(
            error.what.contains(&format!("more than {most} entries")) || error.what.contains("objects"),
            "{at}: {error}"
        );
        assert!(error.what.contains("line 1") && !error.fix.is_empty(), "{error}");
    }
}

#[test]
fn what_all_groups_hold_ends() {
    let groups = |n: usize, keys: Value| {
        let group = |i: usize| {
            let mut group = json!({"name": format!("g{i}"), "target": "tcp://192.0.2.1:9"});
            let keys = keys.as_object().expect("keys").clone();
            group.as_object_mut().expect("a group").extend(keys);
            group
        };
        json!({"name": "x", "groups": (0..n).map(group).collect::<Value>()}).to_string()
    };
    let pool = json!({"source": ["10.0.0.0/16"], "model": {"script": {"steps": [{"send": "x"}]}}});
    assert!(profile::load(&groups(16, pool.clone())).is_ok());
    let error = refused(&groups(17, pool));
    assert_eq!((error.code, error.at.as_str()), ("ND-104-05", "groups[16].source"), "{error}");
    let steps = vec![json!({"expect_regex": "x+"}); 16];
    let pattern = json!({"model": {"script": {"steps": steps}}});
    assert!(profile::load(&groups(8, pattern.clone())).is_ok());
    assert_eq!(refused(&groups(9, pattern)).at, "groups[8].model.script.steps");
    let body = json!({"target": "http://192.0.2.1/", "model": {"http": {"method": "POST", "size": "16MiB"}}});
    assert!(profile::load(&groups(16, body.clone())).is_ok());
    assert_eq!(refused(&groups(17, body)).at, "groups[16].model.http");
}

#[test]
fn many_faults_are_told_up_to_a_hundred_and_in_few_words() {
    let names: Vec<Value> = (0..1000)
        .map(|i| json!({"name": format!("{i:0>60}"), "target": "web", "model": {"http": {}}}))
        .collect();
    let unknown = vec![json!({"metric": "nobody.loss", "max": 0}); 1000];
    let mut profile = good();
    profile["groups"] = names.into();
    profile["thresholds"] = unknown.into();
    let errors = profile::load(&profile.to_string()).expect_err("nobody");
    assert_eq!(errors.len(), 100);
    let longest = errors.iter().map(|e| e.to_string().len()).max();
    assert!(longest < Some(3000), "{longest:?}");
}

#[test]
fn what_steers_a_terminal_is_shown_and_not_done() {
    let escape = "\x1b]0;owned\x07\u{202e}\u{9b}2J";
    for profile in [
        with(good(), "/name", json!(escape)),
        with(good(), "/groups/0/target", json!(escape)),
        with(good(), &format!("/targets/{escape}"), json!("nothing")),
        with(good(), &format!("/{escape}"), json!(1)),
        with(good(), "/groups/0/model/mqtt/client_id", json!(format!("{{{escape}}}"))),
        with(good(), "/thresholds/0/metric", json!(escape)),
        with(good(), "/groups/0/source", json!([escape])),
    ] {
        for error in profile::load(&profile).expect_err("bad") {
            let text = error.to_string();
            assert!(!text.contains(|c: char| c.is_control() || c == '\u{202e}'), "{text:?}");
        }
    }
}

#[test]
fn what_there_is_once_is_named_once() {
    let d = |at: &str, value: Value| with(dpdk(), at, value);
    let port = |keys: Value| {
        let mut port = json!({"name": "b", "device": "pair:x", "ip": "10.1.0.2", "role": "reflector"});
        port.as_object_mut().expect("a port").extend(keys.as_object().expect("keys").clone());
        port
    };
    let placed = |cores: [u16; 2]| {
        json!([{"core": cores[0], "elements": ["a.generator", "a.receiver"]},
               {"core": cores[1], "elements": ["b.reflector"]}])
    };
    for fine in [
        d("/transport/dpdk/placement", placed([0, 1])),
        d("/transport/dpdk/ports/1", port(json!({"ip": "10.1.0.1", "vlan": 7}))),
        with(good(), "/transport", json!({"sockets": {"cores": [0, 1]}})),
        with(good(), "/groups/0/source", json!(["10.0.0.1", "10.0.0.2"])),
    ] {
        if let Err(errors) = profile::load(&fine) {
            // one end of another VLAN is no target of a port without
            panic!("{errors:#?}");
        }
    }
    judge(vec![
        (
            "a core of two workers",
            with(good(), "/transport", json!({"sockets": {"cores": [1, 0, 1]}})),
            "ND-104-06",
            "transport.sockets.cores[2]",
            "core 1",
        ),
        (
            "a core of two workers of ports",
            d("/transport/dpdk/placement", placed([1, 1])),
            "ND-104-06",
            "transport.dpdk.placement[1].core",
            "placement[0]",
        ),
        (
            "a source twice",
            with(good(), "/groups/0/source", json!(["10.0.0.1-10.0.0.9", "10.0.0.4"])),
            "ND-104-06",
            "groups[0].source[1]",
            "10.0.0.4",
        ),
        (
            "an address of two ports",
            d("/transport/dpdk/ports/1", port(json!({"ip": "10.1.0.1"}))),
            "ND-104-06",
            "transport.dpdk.ports[1].ip",
            "10.1.0.1",
        ),
        (
            "a NIC of two ports",
            d(
                "/transport/dpdk/ports",
                json!([
                {"name": "a", "device": "0000:01:00.0", "ip": "10.1.0.1"},
                {"name": "b", "device": "0000:01:00.0", "ip": "10.1.0.2", "role": "reflector"}]),
            ),
            "ND-104-06",
            "transport.dpdk.ports[1].device",
            "\"a\"",
        ),
        (
            "a port that is its own target",
            d("/groups/0/target", json!("udp://10.1.0.1:9")),
            "ND-104-07",
            "groups[0].target",
            "10.1.0.1",
        ),
        (
            "a source that is the target",
            d("/groups/0/source", json!(["10.1.0.0/29"])),
            "ND-104-07",
            "groups[0].source[0]",
            "10.1.0.2",
        ),
        (
            "a sign in a MAC address",
            d("/transport/dpdk/ports/0/mac", json!("02:00:00:00:00:+1")),
            "ND-104-04",
            "transport.dpdk.ports[0].mac",
            "+1",
        ),
        (
            "an address of a group of stations",
            d("/transport/dpdk/ports/0/mac", json!("01:00:5e:00:00:01")),
            "ND-104-07",
            "transport.dpdk.ports[0].mac",
            "several",
        ),
    ]);
}

#[test]
fn a_flow_that_outlasts_the_load_is_told_and_not_refused() {
    let advice = |model: Value| {
        let text = with(good(), "/groups/0/model", model);
        let profile = profile::load(&text).expect("good");
        profile::advise(&profile).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let mqtt = |count: u32| json!({"mqtt": {"count": count, "interval": "1s"}});
    assert_eq!(advice(mqtt(0)), Vec::<String>::new());
    // two seconds of warm-up and ten to measure: the thirteenth message is due as they end
    assert_eq!(advice(mqtt(13)), Vec::<String>::new());
    let told = advice(mqtt(14));
    assert!(
        told.len() == 1 && told[0].contains("groups[0].model.mqtt.count") && told[0].contains("13s"),
        "{told:?}"
    );
    let mut profile = good();
    profile["transport"] = json!({"sockets": {"cores": [0, 700]}});
    let profile = profile::load(&profile.to_string()).expect("good");
    let told = profile::advise_here(&profile, &[0, 1]);
    assert_eq!(told.iter().map(|e| e.at.as_str()).collect::<Vec<_>>(), ["transport.sockets.cores[1]"]);
}
