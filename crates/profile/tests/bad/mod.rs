//! Every bad profile gets its code, the place of the fault, and something to do about it.

mod dpdk;
mod many;

use serde_json::{Value, json};

fn good() -> Value {
    json!({
        "name": "good",
        "targets": {"broker": "mqtt://10.0.0.2:1883", "web": "http://10.0.0.2/a"},
        "groups": [
            {"name": "sensors", "target": "broker", "devices": 10, "model": {"mqtt": {"qos": 1}}},
            {"name": "pages", "target": "web", "model": {"http": {}},
             "load": {"open": {"rate": "10/s", "stages": [{"over": "1s", "rate": "20/s"}]}}}
        ],
        "thresholds": [{"metric": "sensors.delay.publish.p99", "max": "50ms"}]
    })
}

fn dpdk() -> Value {
    json!({
        "name": "wire",
        "transport": {"dpdk": {"ports": [
            {"name": "a", "device": "pair:x", "ip": "10.1.0.1"},
            {"name": "b", "device": "pair:x", "ip": "10.1.0.2", "role": "reflector"}
        ]}},
        "groups": [{"name": "s", "target": "udp://10.1.0.2:9000", "model": {"stream": {"rate": "1000/s"}}}]
    })
}

/// `base` with the value at JSON pointer `at` replaced or added; `Null` takes it out.
fn with(mut base: Value, at: &str, value: Value) -> String {
    let (parent, key) = at.rsplit_once('/').expect("a pointer");
    let parent = base.pointer_mut(parent).unwrap_or_else(|| panic!("no {at}"));
    match (parent, value) {
        (Value::Object(map), Value::Null) => drop(map.remove(key)),
        (Value::Object(map), value) => drop(map.insert(key.into(), value)),
        (Value::Array(list), value) => list[key.parse::<usize>().expect("an index")] = value,
        _ => panic!("{at} is inside a plain value"),
    }
    base.to_string()
}

#[test]
fn the_good_ones_are_good() {
    for profile in [good(), dpdk()] {
        if let Err(errors) = profile::load(&profile.to_string()) {
            panic!("{errors:#?}");
        }
    }
}

/// What, the profile, the code, the place, a word of the fault or its remedy.
type Case = (&'static str, String, &'static str, &'static str, &'static str);

fn judge(cases: Vec<Case>) {
    let mut wrong = Vec::new();
    for (what, text, code, at, word) in cases {
        let Err(errors) = profile::load(&text) else {
            wrong.push(format!("{what}: accepted"));
            continue;
        };
        let hit =
            errors.iter().find(|e| e.code == code && e.at.starts_with(at) && e.to_string().contains(word));
        if hit.is_none() || errors.iter().any(|e| e.fix.is_empty()) {
            let found: Vec<String> = errors.iter().map(|e| format!("{e}  [fix: {}]", e.fix)).collect();
            wrong.push(format!("{what}: wanted {code} at {at:?} with {word:?}, got {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_fault_is_named_with_its_place_and_a_remedy() {
    let g = |at: &str, value: Value| with(good(), at, value);
    judge(vec![
        ("empty", String::new(), "ND-104-01", "", "EOF"),
        ("not JSON", "{\"name\": }".into(), "ND-104-01", "", "line 1"),
        ("trailing text", good().to_string() + "x", "ND-104-01", "", "trailing"),
        ("a list", "[]".into(), "ND-104-04", "", "object"),
        ("no name", g("/name", Value::Null), "ND-104-03", "", "\"name\""),
        ("odd name", g("/name", json!("a b/c")), "ND-104-04", "name", "letters"),
        ("unknown key", g("/grups", json!([])), "ND-104-02", "grups", "\"groups\""),
        (
            "unknown key, nested",
            g("/groups/0/devics", json!(1)),
            "ND-104-02",
            "groups[0].devics",
            "\"devices\"",
        ),
        (
            "unknown model",
            g("/groups/0/model", json!({"mqt": {}})),
            "ND-104-02",
            "groups[0].model",
            "\"mqtt\"",
        ),
        (
            "two models",
            g("/groups/0/model", json!({"mqtt": {}, "http": {}})),
            "ND-104-04",
            "groups[0].model",
            "",
        ),
        (
            "unknown model key",
            g("/groups/0/model/mqtt/quos", json!(1)),
            "ND-104-02",
            "groups[0].model.mqtt.quos",
            "\"qos\"",
        ),
        ("bad qos", g("/groups/0/model/mqtt/qos", json!(3)), "ND-104-04", "groups[0].model.mqtt.qos", ""),
        ("no target", g("/groups/0/target", Value::Null), "ND-104-03", "groups[0]", "\"target\""),
        (
            "unknown target",
            g("/groups/0/target", json!("brokr")),
            "ND-104-06",
            "groups[0].target",
            "\"broker\"",
        ),
        (
            "wrong scheme",
            g("/groups/0/target", json!("http://h/")),
            "ND-104-07",
            "groups[0].target",
            "mqtt://",
        ),
        ("bad port", g("/targets/broker", json!("mqtt://h:0")), "ND-104-04", "targets.broker", "65535"),
        (
            "bad port of a URL in a group",
            g("/groups/0/target", json!("mqtt://h:99999")),
            "ND-104-04",
            "groups[0].target",
            "Use 1 to 65535",
        ),
        ("no scheme", g("/targets/broker", json!("10.0.0.2:1883")), "ND-104-04", "targets.broker", "mqtt://"),
        ("path for mqtt", g("/targets/broker", json!("mqtt://h/x")), "ND-104-04", "groups[0].target", "path"),
        ("any wait a stall", g("/groups/0/stall", json!("0s")), "ND-104-05", "groups[0].stall", "length"),
        ("no devices", g("/groups/0/devices", json!(0)), "ND-104-05", "groups[0].devices", "1 to"),
        (
            "negative devices",
            g("/groups/0/devices", json!(-1)),
            "ND-104-04",
            "groups[0].devices",
            "a whole number",
        ),
        (
            "devices as text",
            g("/groups/0/devices", json!("10")),
            "ND-104-04",
            "groups[0].devices",
            "a whole number",
        ),
        (
            "bad source",
            g("/groups/0/source", json!(["10.0.0"])),
            "ND-104-04",
            "groups[0].source[0]",
            "not an IP",
        ),
        ("same name twice", g("/groups/1/name", json!("sensors")), "ND-104-06", "groups[1].name", "its own"),
        ("no unit", g("/phases", json!({"measure": 10})), "ND-104-04", "phases.measure", "unit"),
        ("wrong unit", g("/phases", json!({"measure": "10 apples"})), "ND-104-04", "phases.measure", "250ms"),
        ("empty measure", g("/phases", json!({"measure": "0s"})), "ND-104-05", "phases.measure", "10s"),
        ("sample too fine", g("/phases", json!({"sample": "1ms"})), "ND-104-05", "phases.sample", "100ms"),
        (
            "rate without unit",
            g("/groups/1/load/open/rate", json!(10)),
            "ND-104-04",
            "groups[1].load.open.rate",
            "1000/s",
        ),
        ("open and closed", g("/groups/1/load/closed", json!({})), "ND-104-04", "groups[1].load", ""),
        (
            "rate of nothing",
            g("/groups/1/load", json!({"open": {"rate": "0/s"}})),
            "ND-104-05",
            "groups[1].load.open.rate",
            "above",
        ),
        (
            "stage too large",
            g("/groups/0/load", json!({"closed": {"stages": [{"over": "1s", "devices": 11}]}})),
            "ND-104-05",
            "groups[0].load.closed.stages[0].devices",
            "10",
        ),
        (
            "ramp and stages",
            g("/groups/0/load", json!({"closed": {"ramp": "1s", "stages": [{"over": "1s", "devices": 1}]}})),
            "ND-104-07",
            "groups[0].load.closed.ramp",
            "twice",
        ),
        (
            "tls without tls",
            g("/groups/0/tls", json!({"insecure": true})),
            "ND-104-07",
            "groups[0].tls",
            "mqtt://",
        ),
        ("no groups", g("/groups", json!([])), "ND-104-07", "groups", "nothing"),
        (
            "metric of nobody",
            g("/thresholds/0/metric", json!("sensor.loss")),
            "ND-104-06",
            "thresholds[0].metric",
            "\"sensors\"",
        ),
        (
            "no such delay",
            g("/thresholds/0/metric", json!("sensors.delay.response.p99")),
            "ND-104-06",
            "thresholds[0].metric",
            "publish",
        ),
        (
            "no such metric",
            g("/thresholds/0/metric", json!("sensors.speed")),
            "ND-104-04",
            "thresholds[0].metric",
            "GROUP",
        ),
        (
            "a port over sockets",
            g("/thresholds/0/metric", json!("sensors.port.rx_dropped")),
            "ND-104-06",
            "thresholds[0].metric",
            "the transport is sockets",
        ),
        (
            "no such port",
            with(dpdk(), "/thresholds", json!([{"metric": "s.port.rx_dropped", "max": 0}])),
            "ND-104-06",
            "thresholds[0].metric",
            "Use one of a, b",
        ),
        (
            "no such counter of a port",
            with(dpdk(), "/thresholds", json!([{"metric": "a.port.retransmitted", "max": 0}])),
            "ND-104-04",
            "thresholds[0].metric",
            "tcp_retransmitted",
        ),
        ("no bound", g("/thresholds/0/max", Value::Null), "ND-104-07", "thresholds[0]", "max or min"),
        (
            "a share as a time",
            g("/thresholds/0", json!({"metric": "sensors.stalls.share", "max": "5s"})),
            "ND-104-04",
            "thresholds[0].max",
            "\"1%\"",
        ),
        (
            "more loss than all",
            g("/thresholds/0", json!({"metric": "sensors.loss", "max": 5})),
            "ND-104-04",
            "thresholds[0].max",
            "0.01",
        ),
        (
            "less than no loss",
            g("/thresholds/0", json!({"metric": "sensors.loss", "max": "-1%"})),
            "ND-104-04",
            "thresholds[0].max",
            "0.01",
        ),
        (
            "a time without a unit",
            g("/thresholds/0/max", json!(100)),
            "ND-104-04",
            "thresholds[0].max",
            "50ms",
        ),
        ("two bounds", g("/thresholds/0/min", json!(1)), "ND-104-07", "thresholds[0]", "not both"),
        (
            "bound of another unit",
            g("/thresholds/0/max", json!("5MiB")),
            "ND-104-04",
            "thresholds[0].max",
            "length of time",
        ),
        (
            "certainty",
            g("/thresholds/0/confidence", json!(1.0)),
            "ND-104-05",
            "thresholds[0].confidence",
            "0.95",
        ),
        (
            "share above one",
            g("/validity", json!({"offered": 99})),
            "ND-104-05",
            "validity.offered",
            "0 to 1",
        ),
        ("snap", g("/capture", json!({"snap": 1})), "ND-104-05", "capture.snap", "64"),
        (
            "unknown transport",
            g("/transport", json!({"sokets": {}})),
            "ND-104-02",
            "transport",
            "\"sockets\"",
        ),
    ]);
}

#[test]
fn a_load_beyond_the_clock_or_the_memory_is_refused_at_its_limit() {
    let refused = |base: Value, at: &str, value: Value| {
        let text = with(base, at, value);
        profile::load(&text).err().map(|errors| {
            assert_eq!((errors.len(), errors[0].code), (1, "ND-104-05"), "{errors:#?}");
            (errors[0].at.clone(), errors[0].to_string())
        })
    };
    let stream = |devices: u32, model: Value| {
        let mut profile = dpdk();
        profile["groups"][0]["devices"] = json!(devices);
        (profile, "/groups/0/model", json!({"stream": model}))
    };
    let group = |i: usize| json!({"name": format!("g{i}"), "target": "web", "model": {"http": {}}});
    let groups = |n: usize| (0..n).map(group).collect::<Value>();
    let plain = || with(good(), "/thresholds", json!([])).parse::<Value>().expect("JSON");
    let open = "/groups/1/load/open/rate";
    let cases = [
        ((good(), open, json!("1000M/s")), (good(), open, json!("1000.1M/s")), "groups[1].load.open.rate"),
        (
            (good(), "/groups/1/load/open/stages/0/rate", json!("1000M/s")),
            (good(), "/groups/1/load/open/stages/0/rate", json!("1000000000000M/s")),
            "groups[1].load.open.stages[0].rate",
        ),
        (
            (good(), "/groups/0/devices", json!(10_000_000)),
            (good(), "/groups/0/devices", json!(10_000_001)),
            "groups[0].devices",
        ),
        (
            (good(), "/groups/0/turns", json!({"own": 1})),
            (good(), "/groups/0/turns", json!({"own": 0})),
            "groups[0].turns.own",
        ),
        (
            (good(), "/groups/0/turns", json!({"own": 1, "after": [[3_999_999_999u32, 1]]})),
            (good(), "/groups/0/turns", json!({"own": 1, "after": [[4_000_000_000u32, 1]]})),
            "groups[0].turns.before",
        ),
        (
            (good(), "/groups/0/first_device", json!(4_000_000_000u32)),
            (good(), "/groups/0/first_device", json!(4_000_000_001u32)),
            "groups[0].first_device",
        ),
        (
            stream(20, json!({"rate": "50M/s"})),
            stream(20, json!({"rate": "51M/s"})),
            "groups[0].model.stream.rate",
        ),
        (
            stream(3, json!({"interval": "3ns"})),
            stream(3, json!({"interval": "2ns"})),
            "groups[0].model.stream.interval",
        ),
        (
            (good(), "/groups/0/model/mqtt/interval", json!("10ns")),
            (good(), "/groups/0/model/mqtt/interval", json!("9ns")),
            "groups[0].model.mqtt.interval",
        ),
        ((plain(), "/groups", groups(1000)), (plain(), "/groups", groups(1001)), "groups"),
    ];
    for ((base, at, value), (base_bad, at_bad, value_bad), key) in cases {
        assert_eq!(refused(base, at, value), None, "{key}");
        assert_eq!(refused(base_bad, at_bad, value_bad).map(|(at, _)| at).as_deref(), Some(key));
    }
    let huge = format!("1{}/s", "0".repeat(300));
    let (_, said) = refused(good(), open, json!(huge)).expect("refused");
    assert!(said.contains("1e300 flows a second") && said.ends_with("Use at most \"1000M/s\""), "{said}");
}

#[test]
fn limits_of_stalls_are_times_and_shares() {
    for (metric, max) in [("time", "5s"), ("longest", "500ms"), ("share", "1%"), ("waiting", "50 %")] {
        let threshold = json!({"metric": format!("sensors.stalls.{metric}"), "max": max});
        let text = with(good(), "/thresholds/0", threshold);
        assert!(profile::load(&text).is_ok(), "{metric}");
    }
}

#[test]
fn all_faults_are_told_at_once() {
    let mut bad = good();
    bad["groups"][0]["devices"] = json!(0);
    bad["groups"][1]["target"] = json!("nowhere");
    bad["thresholds"][0]["max"] = Value::Null;
    let errors = profile::load(&bad.to_string()).expect_err("bad");
    assert_eq!(errors.len(), 3, "{errors:#?}");
}

#[test]
fn the_schema_describes_every_key() {
    fn walk(at: &str, value: &Value, bare: &mut Vec<String>, keys: &mut usize) {
        if let Some(properties) = value.get("properties").and_then(Value::as_object) {
            for (key, p) in properties {
                *keys += 1;
                // a choice's one key is described by the choice
                if p.get("description").is_none() && !at.ends_with(".oneOf") {
                    bare.push(format!("{at}.{key}"));
                }
            }
        }
        if let Value::Object(map) = value {
            map.iter().for_each(|(k, v)| walk(&format!("{at}.{k}"), v, bare, keys));
        } else if let Value::Array(list) = value {
            list.iter().for_each(|v| walk(at, v, bare, keys));
        }
    }
    let (mut bare, mut keys) = (Vec::new(), 0);
    walk("", &profile::schema(), &mut bare, &mut keys);
    assert!(bare.is_empty(), "{bare:#?}");
    assert!(keys > 100, "{keys}");
}

#[test]
fn what_users_of_other_load_generators_write_is_told_in_our_words() {
    let g = |at: &str, value: Value| with(good(), at, value);
    judge(vec![
        ("VUs", g("/groups/0/vus", json!(5)), "ND-104-02", "groups[0].vus", "Did you mean \"devices\"?"),
        (
            "a rate of a group",
            g("/groups/1/rate", json!("1/s")),
            "ND-104-02",
            "groups[1].rate",
            "load: {open: {rate:",
        ),
        (
            "a model by its name",
            g("/groups/1/model", json!("http")),
            "ND-104-04",
            "groups[1].model",
            "Write {http: {}}",
        ),
        (
            "a load by its name",
            g("/groups/1/load", json!("open")),
            "ND-104-04",
            "groups[1].load",
            "Write {open: {}}",
        ),
        (
            "a threshold in a line",
            g("/thresholds/0", json!("sensors.p95 < 200ms")),
            "ND-104-04",
            "thresholds[0]",
            "Write {metric: GROUP.delay.NAME.p95, max: 200ms}",
        ),
    ]);
}
