use super::*;
use proptest::prelude::*;
use protocol::describe::{Confirmed, Identity, SendRate, SizeOption, Unit};
use protocol::meter::COUNTERS;
use protocol::target::Carrier;
use protocol::unit::Interval;
use std::collections::BTreeSet;

fn read(json: &str) -> Result<Params, serde_json::Error> {
    serde_json::from_str(json)
}

#[test]
fn each_model_reads_from_nothing_and_writes_itself_whole() {
    for name in Params::NAMES {
        let params = read(&format!("{{\"{name}\": {{}}}}")).expect(name);
        assert_eq!(params.name(), *name);
        assert_eq!(Params::default_of(name).as_ref(), Some(&params));
        assert!(!params.about().delays.is_empty() && !params.schemes().is_empty());
        let written = serde_json::to_string(&params).expect(name);
        assert_eq!(read(&written).expect(&written), params);
    }
}

#[test]
fn the_defaults_make_sense() {
    for name in Params::NAMES {
        let params = Params::default_of(name).expect(name);
        assert_eq!(params.check(), Ok(()), "{name}");
        for scheme in params.schemes() {
            let target = Target { scheme: *scheme, host: "h".into(), port: 1, ipv6: false };
            params.compile(&target).expect(name).device(0);
        }
    }
}

#[test]
fn an_unknown_key_is_an_error() {
    for name in Params::NAMES {
        let error = read(&format!("{{\"{name}\": {{\"colour\": 1}}}}")).expect_err(name).to_string();
        assert!(error.contains("unknown field `colour`"), "{error}");
    }
}

#[test]
fn the_schema_describes_every_key() {
    let schema = schemars::schema_for!(Params).to_value();
    let kinds = schema["$defs"].as_object().expect("definitions");
    let mut keys = 0;
    for (kind, definition) in kinds {
        for (key, value) in definition["properties"].as_object().into_iter().flatten() {
            assert!(value["description"].is_string(), "{kind}.{key} has no description");
            keys += 1;
        }
    }
    assert!(keys > 50, "{keys} keys");
}

#[test]
fn schemes_say_port_and_carrier() {
    let mqtt = Params::default_of("mqtt").expect("mqtt");
    assert_eq!(mqtt.scheme("mqtts"), Ok(Scheme::tls("mqtts", Some(8883))));
    let wrong = mqtt.scheme("mqt").expect_err("a typo");
    assert_eq!(wrong.fix, "did you mean mqtt://?");
    let wrong = mqtt.scheme("https").expect_err("no web");
    assert_eq!(wrong.fix, "use mqtt:// or mqtts://");
    let script = Params::default_of("script").expect("script");
    assert_eq!(script.scheme("udp").map(|scheme| scheme.carrier), Ok(Carrier::Datagram));
    assert_eq!(script.scheme("tls").map(|scheme| scheme.carrier), Ok(Carrier::Stream));
}

#[test]
fn a_device_is_small() {
    let size = std::mem::size_of::<Device>();
    assert!(size <= 136, "{size} bytes for each of 50,000 devices");
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

#[test]
fn descriptions_are_whole_and_name_only_what_there_is() {
    let fixed = COUNTERS.map(|counter| counter.name);
    for about in ALL {
        let model = about.name;
        let mut names = BTreeSet::new();
        for name in about.counters.iter().map(|c| c.name).chain(about.indices.iter().map(|i| i.name)) {
            assert!(is_name(name) && name != "failures" && !fixed.contains(&name), "{model}: {name}");
            assert!(names.insert(name), "{model}: two are called {name}");
        }
        let delays: BTreeSet<_> = about.delays.iter().map(|delay| delay.name).collect();
        assert!(delays.len() == about.delays.len() && delays.iter().all(|name| is_name(name)), "{model}");
        for counter in about.counters {
            assert!(counter.about.ends_with('.') && counter.unit != Unit::Ratio, "{model}: {}", counter.name);
        }
        for index in about.indices {
            assert!(index.about.ends_with('.') && !index.over.is_empty() && !index.under.is_empty());
            for part in [index.over, index.under, index.less].into_iter().flatten() {
                let known =
                    fixed.contains(part) || about.counters.iter().any(|counter| counter.name == *part);
                assert!(known, "{model}: {} is made of {part}", index.name);
            }
        }
        for delay in about.delays {
            assert!(!delay.about.is_empty() && !delay.about.ends_with('.'), "{model}: {}", delay.name);
        }
        assert!(about.counters.len() <= 256, "{model}: every worker holds them for every group");
    }
}

#[test]
fn what_confirms_messages_is_the_key_that_the_description_names() {
    for about in ALL {
        let whether = |key: &str, value: serde_json::Value| {
            read(&serde_json::json!({about.name: {key: value}}).to_string()).map(|params| params.confirmed())
        };
        let default = Params::default_of(about.name).expect("a model");
        match about.confirmed {
            Confirmed::Always => assert!(default.confirmed(), "{}", about.name),
            Confirmed::Never => assert!(!default.confirmed(), "{}", about.name),
            Confirmed::By(key) => {
                let off = whether(key, false.into()).or_else(|_| whether(key, 0.into())).expect("a key");
                let on = whether(key, true.into()).or_else(|_| whether(key, 1.into())).expect("a key");
                assert_eq!((off, on), (false, true), "{}.{key}", about.name);
                assert!(default.confirmed(), "{}.{key}: what is not said is taken for true", about.name);
            }
        }
    }
}

#[test]
fn a_quick_start_sets_keys_that_there_are() {
    let mut schemes = BTreeSet::new();
    for about in ALL {
        let Some(quick) = about.quick else { continue };
        let params = serde_json::to_value(Params::default_of(about.name)).expect("JSON");
        let keys = params[about.name].as_object().expect("an object");
        let size = match quick.size {
            SizeOption::Key(key) => Some(key),
            SizeOption::Refused { .. } => None,
        };
        let all = [Some(quick.count), Some(quick.interval), quick.rate, quick.path, size];
        for key in all.into_iter().flatten().chain(quick.options.iter().map(|(_, key)| *key)) {
            // the target is the group's
            assert!(key == "target" || keys.contains_key(key), "{}: {key}", about.name);
        }
        assert!((1..=1000).contains(&quick.devices));
        for scheme in about.schemes {
            assert!(schemes.insert(scheme.name), "{}:// could mean two models", scheme.name);
        }
    }
}

#[test]
fn the_path_of_a_url_is_taken_by_those_that_say_so() {
    for about in ALL {
        let mut params = Params::default_of(about.name).expect("a model");
        let takes = params.path().is_some();
        params.set_path("/a?b=c");
        assert_eq!(params.path(), takes.then_some("/a?b=c"), "{}", about.name);
        assert_eq!(about.quick.and_then(|quick| quick.path).is_some(), takes, "{}", about.name);
    }
}

#[test]
fn what_follows_from_parameters_is_what_they_say() {
    let of = |json: &str| read(json).expect(json);
    let stream = of(r#"{"stream": {"rate": "250/s", "count": 5}}"#);
    assert_eq!(stream.send_rate(), Some(SendRate { key: "rate", per_second: 250.0 }));
    let repeats = stream.repeats().expect("a count");
    assert_eq!((repeats.key, repeats.count, repeats.interval), ("count", 5, Interval::ms(4)));
    assert_eq!(stream.replies().map(|replies| replies.per_second), Some(250.0));
    let http = of(r#"{"http": {"interval": "10ms", "size": "3kB"}}"#);
    assert_eq!(http.send_rate(), Some(SendRate { key: "interval", per_second: 100.0 }));
    assert_eq!((http.filled(), http.compares(), http.stateless()), (3000, false, None));
    assert!(of(r#"{"mqtt": {"publish": false, "subscribe": [{"topic": "a"}]}}"#).repeats().is_none());
    let script = of(
        r##"{"script": {"steps": [{"repeat": {"count": 1, "steps": [{"expect_regex": "a"}]}}, {"expect_regex": "b"}]}}"##,
    );
    assert_eq!(script.expressions(), Some(("steps", 2)));
    let sends = of(r#"{"script": {"steps": [{"send": "a"}]}}"#);
    assert!(sends.awaits_answers(Carrier::Stream) && !sends.awaits_answers(Carrier::Datagram));
    assert!(!of(r#"{"stream": {"echo": false}}"#).awaits_answers(Carrier::Datagram));
    assert!(of(r#"{"ping": {}}"#).compares());
    assert_eq!(of(r#"{"ping": {"interval": "0s"}}"#).replies(), None, "one echo is under way");
}

#[test]
fn sessions_have_a_name_of_their_own_and_kept_ones_the_same_in_every_run() {
    let named = |keeps: bool, run: u64| {
        let mut params = read(&format!(r#"{{"mqtt": {{"clean_session": {}}}}}"#, !keeps)).expect("mqtt");
        params.identify(Identity { run, profile: 7, trial: 0 });
        serde_json::to_value(&params).expect("JSON")["mqtt"]["client_id"].clone()
    };
    assert_ne!(named(false, 1), named(false, 2));
    assert_eq!(named(true, 1), named(true, 2));
}

proptest! {
    #[test]
    fn no_model_is_broken_by_what_comes(
        model in prop::sample::select(Params::NAMES),
        data in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        fuzz(model, &data);
    }
}
