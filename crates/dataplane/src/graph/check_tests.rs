use super::*;
use crate::graph::kinds;
use serde_json::json;

/// The example of the documentation.
fn firewall() -> Value {
    json!({
        "ports": {"inside": {"device": "null", "queues": 2}, "outside": {"device": "null"}},
        "elements": {
            "parse": {"kind": "parser"},
            "acl": {"kind": "classifier", "rules": [{"match": "tcp dst port 22", "to": "deny"}, {"match": "any", "to": "pass"}]},
            "log": {"kind": "capture", "file": "denied.pcapng"}
        },
        "edges": ["inside.rx -> parse -> acl", "acl.pass -> outside.tx", "acl.deny -> log", "outside.rx -> inside.tx"],
        "replicas": {"acl": {"count": 2, "affinity": "flow"}},
        "placement": [{"core": 2, "elements": ["inside.rx", "parse"]}, {"core": 3, "elements": ["acl", "log"]}]
    })
}

fn faults(value: &Value) -> Vec<String> {
    let read = CheckedGraph::read(value, &kinds());
    let faults = read.err().unwrap_or_default();
    assert!(
        faults.iter().all(|fault| fault.code.starts_with("ND-104-") && !fault.fix.is_empty()),
        "{faults:?}"
    );
    faults.iter().map(ToString::to_string).collect()
}

/// The firewall with `value` at `path`.
fn with(path: &str, value: Value) -> Value {
    let mut graph = firewall();
    let (parent, key) = path.rsplit_once('/').expect("a path");
    let parent = graph.pointer_mut(parent).expect("a parent");
    match parent.as_array_mut() {
        Some(list) => list[key.parse::<usize>().expect("a number")] = value,
        None => parent[key] = value,
    }
    graph
}

#[test]
fn a_graph_that_is_right_is_read() {
    let read = CheckedGraph::read(&firewall(), &kinds()).map_err(|faults| faults[0].to_string());
    let checked = read.unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(checked.edges.len(), 5);
    assert_eq!(checked.settings["acl"].outputs(), ["deny", "pass"]);
    // Queues by themselves, with elements for each.
    let mut each = firewall();
    each["edges"] = json!([
        "inside.rx0 -> parse -> acl",
        "inside.rx1 -> parse1 -> acl",
        "acl.pass -> outside.tx",
        "acl.deny -> log",
        "outside.rx -> inside.tx1"
    ]);
    each["elements"]["parse1"] = json!({"kind": "parser", "port": "inside"});
    each["placement"] =
        json!([{"elements": ["inside.rx0", "inside.tx1"]}, {"elements": ["inside.rx1", "acl#1"]}]);
    assert_eq!(faults(&each), Vec::<String>::new());
}

#[test]
fn each_fault_is_named_with_place_and_remedy() {
    for (path, value, said) in [
        (
            "/elements/acl/kind",
            json!("classifer"),
            "at elements.acl.kind: there is no kind of element \"classifer\". Did you mean \"classifier\"?",
        ),
        (
            "/elements/acl/ruls",
            json!([]),
            "at elements.acl.ruls: \"ruls\" is not a known key. Did you mean \"rules\"?",
        ),
        (
            "/elements/acl/rules/0",
            json!({"match": "tpc", "to": "deny"}),
            "at elements.acl.rules[0].match: \"tpc\"",
        ),
        (
            "/elements/parse/port",
            json!("insid"),
            "at elements.parse.port: there is no port \"insid\". Did you mean \"inside\"?",
        ),
        ("/elements/inside", json!({"kind": "discard"}), "an element are called \"inside\""),
        ("/elements/a.b", json!({"kind": "discard"}), "at elements.a.b: \"a.b\" cannot be a name"),
        ("/elements/parse", json!({"port": "inside"}), "at elements.parse: the key \"kind\" is missing"),
        ("/ports/inside/device", json!("nul"), "at ports.inside.device"),
        ("/ports/inside/queues", json!(17), "at ports.inside.queues: a port has 1 to 16 queues"),
        ("/ports/inside/quues", json!(1), "Did you mean \"queues\"?"),
        ("/ports/inside/mac", json!("x"), "at ports.inside.mac"),
        ("/ports", json!({}), "at ports: a graph of 0 ports cannot run"),
        (
            "/edges/3",
            json!("outside.rx -> insid.tx"),
            "at edges[3]: there is no element and no port queue \"insid.tx\". Did you mean \"inside.tx\"?",
        ),
        ("/edges/2", json!("acl.deny -> parse"), "round for ever: "),
        (
            "/edges/2",
            json!("acl.pass -> log"),
            "ND-104-33: at edges[2]: output \"pass\" of \"acl\" is connected already, by edges[1]",
        ),
        ("/edges/3", json!("inside.rx0 -> inside.tx"), "\"inside.rx\" and single queues of it"),
        ("/replicas/log", json!({"count": 2}), "ND-104-33: at replicas.log: there can be one \"log\" only"),
        ("/replicas/acl/count", json!(33), "at replicas.acl.count: there cannot be 33"),
        (
            "/replicas/lag",
            json!({"count": 2}),
            "at replicas.lag: there is no element \"lag\". Did you mean \"log\"?",
        ),
        ("/replicas/inside.rx", json!({"count": 2}), "Give ports.NAME.queues"),
        ("/replicas/acl/affinity", json!("upstream"), "there are 2 of \"acl\", but 1 of \"parse\" before it"),
        (
            "/replicas/acl/affinity",
            json!("flows"),
            "at replicas.acl.affinity: \"flows\" is not a known choice. Did you mean \"flow\"?",
        ),
        (
            "/replicas/acl/affinity",
            json!("owner"),
            "at replicas.acl.affinity: no classifier owns what it works on",
        ),
        (
            "/placement/1",
            json!({"elements": ["parse"]}),
            "at placement[1].elements[0]: \"parse\" is placed twice",
        ),
        ("/placement/1", json!({"elements": ["acl#2"]}), "no port queue \"acl#2\""),
        ("/placement/1", json!({"elements": ["inside.rx2"]}), "no port queue \"inside.rx2\""),
        ("/placement/1", json!({"core": 1, "node": 0, "elements": []}), "at placement[1].core"),
        ("/memry", json!("1GiB"), "Did you mean \"memory\"?"),
        ("/memory", json!("64MiB"), "Use 128MiB or more"),
    ] {
        let faults = faults(&with(path, value));
        assert!(faults.iter().any(|fault| fault.contains(said)), "{path}: {said}: {faults:#?}");
    }
    let mut unused = firewall();
    unused["elements"]["more"] = json!({"kind": "tee"});
    let faults = faults(&unused).join("\n");
    for said in
        ["nothing leads to \"more\"", "\"more\" leads nowhere", "output \"copy\" of \"more\" leads nowhere"]
    {
        assert!(faults.contains(said), "{faults}");
    }
}

#[test]
fn all_faults_are_told_at_once() {
    let mut graph = firewall();
    graph["ports"]["inside"]["quues"] = json!(1);
    graph["elements"]["acl"]["rules"][0]["match"] = json!("tpc");
    graph["elements"]["parse"]["kind"] = json!("pasrer");
    graph["edges"][3] = json!("outside.rx -> nowhere");
    graph["placement"][0]["elements"][0] = json!("lgo");
    let faults = faults(&graph);
    let places = [
        "ports.inside.quues",
        "elements.acl.rules[0].match",
        "elements.parse.kind",
        "edges[3]",
        "placement[0].elements[0]",
    ];
    for place in places {
        assert!(faults.iter().any(|fault| fault.contains(&format!("at {place}:"))), "{place}: {faults:#?}");
    }
    // What follows from one of these is not told besides.
    assert_eq!(faults.len(), places.len(), "{faults:#?}");
}

#[test]
fn queues_are_told_from_elements() {
    assert_eq!(queue("in.rx"), Some(("in", Direction::Receive, None)));
    assert_eq!(queue("in.tx15"), Some(("in", Direction::Transmit, Some(15))));
    for name in ["in", "in.rxx", "in.rx01", "in.rx-1", "rx", "in.out", "in.rx99999999"] {
        assert_eq!(queue(name), None, "{name}");
    }
}
/// A kind whose replicas divide what they keep.
mod table {
    use element::kind::{Build, ElementKind};
    use engine::Element;
    use profile::Error;
    use protocol::problem::Problem;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    /// A table of rows.
    #[derive(Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct Options {
        /// Its rows.
        rows: usize,
    }

    impl ElementKind for Options {
        const KIND: &'static str = "table";
        const DROPS: &'static [&'static str] = &[];
        const REPLICABLE: bool = true;
        const OWNED: bool = true;
        const EXAMPLE: &'static str = r#"{"rows": 1}"#;

        fn check_replicas(&self, count: usize) -> Vec<Problem> {
            let few = || Problem::new("rows", "fewer rows than replicas", "Use more rows");
            (self.rows < count).then(few).into_iter().collect()
        }

        fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, Error> {
            Err(cx.fault("rows", "this kind is checked only"))
        }
    }
}

/// What is wrong with a table of so many rows and replicas.
fn table_faults(rows: usize, count: usize, affinity: &str) -> Vec<String> {
    let graph = &json!({
        "ports": {"a": {"device": "null"}, "b": {"device": "null"}},
        "elements": {"t": {"kind": "table", "rows": rows}},
        "edges": ["a.rx -> t -> b.tx", "b.rx -> a.tx"],
        "replicas": {"t": {"count": count, "affinity": affinity}},
    });
    let kinds = kinds().with(&[element::kind::kind::<table::Options>()]);
    let read = CheckedGraph::read(graph, &kinds);
    read.err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn those_that_divide_what_they_keep_get_their_own() {
    assert_eq!(table_faults(2, 2, "owner"), Vec::<String>::new());
    let said = table_faults(2, 2, "flow");
    assert!(said[0].contains("at replicas.t.affinity: several table divide"), "{said:?}");
}

/// What an element cannot divide among so many replicas is told before a port is opened.
#[test]
fn options_are_held_against_the_number_of_replicas() {
    assert_eq!(table_faults(3, 3, "owner"), Vec::<String>::new());
    let said = table_faults(2, 3, "owner");
    let [only] = &said[..] else { panic!("{said:#?}") };
    assert!(only.contains("ND-104-04: at elements.t.rows: fewer rows than replicas"), "{only}");
}
