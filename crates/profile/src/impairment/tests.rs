use super::*;
use serde_json::{Value, from_value, json};

fn wrong(impairment: Value) -> String {
    let spec: Impairment = from_value(impairment).expect("well-formed");
    spec.check().expect_err("must be refused").to_string()
}

fn right(impairment: Value) -> Impairment {
    let spec: Impairment = from_value(impairment).expect("well-formed");
    spec.check().expect("makes sense");
    spec
}

#[test]
fn all_there_is_reads_and_reads_back() {
    let link = json!({
        "seed": 7,
        "a_to_b": {
            "delay": {"normal": {"mean": "40ms", "deviation": "5ms"}},
            "overtaking": true,
            "loss": {"gilbert_elliott": {"enter_bad": "1%", "leave_bad": "20%"}},
            "duplicate": "10ppm",
            "corrupt": "0.1%",
            "reorder": {"share": "1%", "by": {"packets": 3}},
            "bottleneck": {"rate": "100Mbit/s", "queue": {"codel": {"target": "5ms"}}}
        },
        "b_to_a": {"delay": {"pareto": {"least": "10ms", "shape": 3.0}}, "loss": {"list": [1, 5]}},
        "timeline": {"steps": [{"at": "1s", "a_to_b": {}}], "repeat": "2s"}
    });
    let spec: LinkSpec = from_value(link).expect("well-formed");
    spec.check().expect("makes sense");
    let Some(Loss::GilbertElliott(bursts)) = spec.a_to_b.loss else { panic!("bursts") };
    assert_eq!((bursts.lost_bad, bursts.lost_good), (Share::ALL, Share::NONE));
    let text = serde_json::to_string(&spec).expect("JSON");
    assert_eq!(serde_json::from_str::<LinkSpec>(&text).expect("own form"), spec);
    let schema = serde_json::to_string(&schemars::schema_for!(LinkSpec)).expect("a schema");
    assert!(schema.contains("gilbert_elliott"), "{schema}");
}

#[test]
fn nothing_named_impairs_nothing() {
    assert_eq!(right(json!({})), Impairment::default());
}

#[test]
fn what_nobody_knows_is_refused() {
    for bad in [
        json!({"dealy": {"constant": "1ms"}}),
        json!({"delay": {"constant": 5}}),
        json!({"delay": {"uniform": {"from": "1ms", "to": "2ms", "x": 1}}}),
        json!({"loss": {"independent": 0.1}}),
        json!({"bottleneck": {"queue": {"tail_drop": {"packets": 5}}}}),
    ] {
        assert!(from_value::<Impairment>(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn each_limit_just_passes_and_just_fails() {
    right(json!({"delay": {"constant": "60s"}}));
    assert!(
        wrong(json!({"delay": {"constant": "60.001s"}})).starts_with("delay.constant: 60001ms is too long")
    );
    right(json!({"delay": {"uniform": {"from": "2ms", "to": "2ms"}}}));
    assert!(
        wrong(json!({"delay": {"uniform": {"from": "2ms", "to": "1ms"}}})).starts_with("delay.uniform.to")
    );
    right(json!({"delay": {"pareto": {"least": "1ns", "shape": 0.1}}}));
    assert!(wrong(json!({"delay": {"pareto": {"least": "0ns", "shape": 1.0}}})).contains("zero"));
    assert!(wrong(json!({"delay": {"pareto": {"least": "1ms", "shape": 0.09}}})).contains("0.09"));
    assert!(wrong(json!({"delay": {"pareto": {"least": "11s", "shape": 1.0}}})).contains("less than least"));
    right(json!({"delay": {"quantiles": ["1ms", "1ms"]}}));
    assert!(wrong(json!({"delay": {"quantiles": ["1ms"]}})).contains("give 2 to"));
    assert!(wrong(json!({"delay": {"quantiles": ["2ms", "1ms"]}})).contains("in order"));
    right(json!({"delay": {"samples": ["2ms", "1ms"]}}));
    assert!(wrong(json!({"delay": {"samples": []}})).contains("give 1 to"));
    right(json!({"loss": {"periodic": 1}}));
    assert!(wrong(json!({"loss": {"periodic": 0}})).starts_with("loss.periodic"));
    right(json!({"loss": {"list": [1, 2]}}));
    assert!(wrong(json!({"loss": {"list": [0, 2]}})).starts_with("loss.list"));
    assert!(wrong(json!({"loss": {"list": [2, 2]}})).starts_with("loss.list"));
    let reorder = |by: Value| json!({"reorder": {"share": "1%", "by": by}});
    right(reorder(json!({"packets": 1000})));
    assert!(wrong(reorder(json!({"packets": 1001}))).starts_with("reorder.by.packets"));
    assert!(wrong(reorder(json!({"packets": 0}))).starts_with("reorder.by.packets"));
    right(reorder(json!({"time": "1ns"})));
    assert!(wrong(reorder(json!({"time": "0s"}))).starts_with("reorder.by.time"));
    let queue = |queue: Value| json!({"bottleneck": {"rate": "1Mbit/s", "queue": queue}});
    right(queue(json!({"tail_drop": {"bytes": "1538B"}})));
    assert!(wrong(queue(json!({"tail_drop": {"bytes": "1537B"}}))).contains("tail_drop.bytes"));
    right(queue(json!({"tail_drop": {"packets": 1}})));
    assert!(wrong(queue(json!({"tail_drop": {"packets": 0}}))).contains("tail_drop.packets"));
    let red = |min: &str, max: &str, weight: &str| {
        queue(json!({"red": {"limit": {"packets": 100}, "min": min, "max": max, "weight": weight}}))
    };
    right(red("10%", "11%", "1ppm"));
    assert!(wrong(red("10%", "10%", "1%")).contains("red.max"));
    assert!(wrong(red("10%", "30%", "0%")).contains("red.weight"));
    right(queue(json!({"codel": {"target": "99ms"}})));
    assert!(wrong(queue(json!({"codel": {"target": "100ms"}}))).contains("codel.target"));
}

#[test]
fn a_timeline_goes_forward() {
    let check = |timeline: Value| {
        let spec: LinkSpec = from_value(json!({"timeline": timeline})).expect("well-formed");
        spec.check().map_err(|problem| problem.to_string())
    };
    check(json!({"steps": [{"at": "1s"}, {"at": "1s"}], "repeat": "1.001s"})).expect("in order");
    let back = check(json!({"steps": [{"at": "1s"}, {"at": "999ms"}]})).expect_err("backwards");
    assert!(back.starts_with("timeline.steps[1].at"), "{back}");
    let short = check(json!({"steps": [{"at": "1s"}], "repeat": "1s"})).expect_err("too short");
    assert!(short.starts_with("timeline.repeat"), "{short}");
    let deep =
        check(json!({"steps": [{"at": "1s", "b_to_a": {"loss": {"periodic": 0}}}]})).expect_err("deep");
    assert!(deep.starts_with("timeline.steps[0].b_to_a.loss.periodic"), "{deep}");
}
