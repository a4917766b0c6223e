//! The edges of a graph as people write them: `inside.rx -> parse -> acl`, `acl.deny -> log`.

use profile::Error;
use protocol::problem::closest;
use std::collections::BTreeMap;

/// A name that leads nowhere, or is used twice.
const BAD_REFERENCE: &str = "ND-104-06";
/// Elements that are not connected as they must be.
const BAD_GRAPH: &str = "ND-104-33";
/// Most elements in a row.
const ROW: usize = 256;

/// An element or a port's queue, as edges see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EdgeEnd {
    /// Names of its outputs; `None`: they are not known, since what says so is wrong.
    pub outputs: Option<Vec<String>>,
    /// Whether it takes packets.
    pub takes: bool,
}

/// From an output of one to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// Where it starts.
    pub from: String,
    /// At which output.
    pub output: usize,
    /// Where it leads.
    pub to: String,
}

/// What there is, by name.
pub type Ends = BTreeMap<String, EdgeEnd>;

/// Read all edges; what is wrong goes to `faults`.
pub fn read(lines: &[String], ends: &Ends, faults: &mut Vec<Error>) -> Vec<Edge> {
    let mut edges: Vec<Edge> = Vec::new();
    // By start and output: the line that connected it.
    let mut connected: BTreeMap<(String, usize), usize> = BTreeMap::new();
    for (i, line) in lines.iter().enumerate() {
        let at = format!("edges[{i}]");
        let words: Vec<&str> = line.split("->").map(str::trim).collect();
        if words.len() < 2 || words.len() > ROW || words.iter().any(|word| word.is_empty()) {
            let what = format!("{line:?} does not say what leads where");
            faults.push(Error::new(
                "ND-104-04",
                at,
                what,
                "Write it like \"parse -> acl\" or \"acl.deny -> log\"",
            ));
            continue;
        }
        for pair in words.windows(2) {
            let from = start(pair[0], ends, &at).map_err(|fault| faults.push(*fault)).ok();
            let to = end(pair[1], ends, &at).map_err(|fault| faults.push(*fault)).ok();
            let (from, output, to) = match (from, to) {
                (Some(Some((from, output))), Some(to)) => (from, output, to),
                // One end is wrong, and is told: the other one counts as connected, or it would be told, too.
                (Some(Some((from, output))), None) => (from, output, String::new()),
                (_, Some(to)) => {
                    edges.push(Edge { from: String::new(), output: 0, to });
                    continue;
                }
                (_, None) => continue,
            };
            if let Some(before) = connected.insert((from.clone(), output), i) {
                let name = output_name(ends, &from, output);
                let what = format!("output {name:?} of {from:?} is connected already, by edges[{before}]");
                let fix = "Leave one out, or put an element of kind tee between them, which copies";
                faults.push(Error::new(BAD_GRAPH, &at, what, fix));
                continue;
            }
            edges.push(Edge { from, output, to });
        }
    }
    // What is named twice in a row, as in `a -> b -> c`, is found once only.
    faults.dedup();
    edges
}

fn output_name(ends: &Ends, element: &str, output: usize) -> String {
    let outputs = ends.get(element).and_then(|end| end.outputs.as_ref());
    outputs.and_then(|outputs| outputs.get(output)).cloned().unwrap_or_default()
}

/// What a name may be a part of: `acl` of `acl.deny`. Ports' queues have a dot in their own names.
fn split_output<'a>(word: &'a str, ends: &Ends) -> Option<(&'a str, Option<&'a str>)> {
    if ends.contains_key(word) {
        return Some((word, None));
    }
    let (element, output) = word.rsplit_once('.')?;
    ends.contains_key(element).then_some((element, Some(output)))
}

fn unknown(word: &str, ends: &Ends, at: &str) -> Box<Error> {
    let names = || ends.keys().map(String::as_str);
    let fix = match closest(word, names()) {
        Some(near) => format!("Did you mean {near:?}?"),
        None => format!("There are {}", comma_list(names())),
    };
    Box::new(Error::new(BAD_REFERENCE, at, format!("there is no element and no port queue {word:?}"), fix))
}

/// Where an edge starts. `None`: that cannot be told, as something else is wrong.
fn start(word: &str, ends: &Ends, at: &str) -> Result<Option<(String, usize)>, Box<Error>> {
    let (name, output) = split_output(word, ends).ok_or_else(|| unknown(word, ends, at))?;
    let Some(outputs) = ends.get(name).and_then(|end| end.outputs.as_ref()) else { return Ok(None) };
    let all = || comma_list(outputs.iter().map(String::as_str));
    let found = match output {
        Some(output) => outputs.iter().position(|known| known == output),
        None if outputs.len() == 1 => Some(0),
        None => outputs.iter().position(|known| known == "out"),
    };
    found.map(|output| Some((name.to_owned(), output))).ok_or_else(|| {
        let (what, fix) = match (output, outputs.is_empty()) {
            (_, true) => {
                (format!("{name:?} has no outputs: packets end there"), "Let the edge end there".to_owned())
            }
            (Some(output), _) => {
                let near = closest(output, outputs.iter().map(String::as_str));
                let fix = near.map_or_else(
                    || format!("It has {}", all()),
                    |near| format!("Did you mean {name}.{near}?"),
                );
                (format!("{name:?} has no output {output:?}"), fix)
            }
            (None, _) => {
                (format!("{name:?} has several outputs"), format!("Say which: {name}. and one of {}", all()))
            }
        };
        Box::new(Error::new(BAD_REFERENCE, at, what, fix))
    })
}

fn end(word: &str, ends: &Ends, at: &str) -> Result<String, Box<Error>> {
    // In a row it may be named with the output by which the row goes on.
    let (name, _) = split_output(word, ends).ok_or_else(|| unknown(word, ends, at))?;
    if ends.get(name).is_some_and(|end| end.takes) {
        return Ok(name.to_owned());
    }
    let what = format!("{name:?} takes no packets");
    Err(Box::new(Error::new(BAD_GRAPH, at, what, "Let the edge begin there")))
}

/// Every output that leads nowhere, every element that nothing leads to, and a circle if there is one.
pub fn check(edges: &[Edge], ends: &Ends, optional: impl Fn(&str) -> bool, faults: &mut Vec<Error>) {
    let mut fault = |what: String, fix: &str| faults.push(Error::new(BAD_GRAPH, "edges", what, fix));
    for (name, end) in ends {
        for (output, label) in end.outputs.iter().flatten().enumerate() {
            if !edges.iter().any(|edge| edge.from == *name && edge.output == output) && !optional(name) {
                let what = match label.as_str() {
                    "out" => format!("{name:?} leads nowhere"),
                    label => format!("output {label:?} of {name:?} leads nowhere"),
                };
                fault(what, "Connect it; an element of kind discard drops and counts what comes");
            }
        }
        if end.takes && end.outputs.is_some() && !edges.iter().any(|edge| edge.to == *name) && !optional(name)
        {
            fault(format!("nothing leads to {name:?}"), "Connect it, or leave it out");
        }
    }
    if let Some(circle) = circle(edges) {
        let way = circle.join(" -> ");
        fault(
            format!("packets would go round for ever: {way}"),
            "Let one of these lead elsewhere; only ports may close a circle",
        );
    }
}

/// A way that comes back to its start.
fn circle(edges: &[Edge]) -> Option<Vec<String>> {
    let mut left: Vec<&Edge> = edges.iter().collect();
    // Edges from where nothing leads to are in no circle; nor are those to where nothing goes on.
    loop {
        let before = left.len();
        let old = left.clone();
        left.retain(|edge| {
            old.iter().any(|other| other.to == edge.from) && old.iter().any(|other| other.from == edge.to)
        });
        if left.len() == before {
            break;
        }
    }
    let mut way = vec![left.first()?.from.clone()];
    loop {
        let next = left.iter().find(|edge| Some(&edge.from) == way.last())?.to.clone();
        if let Some(first) = way.iter().position(|name| *name == next) {
            way.drain(..first);
            way.push(next);
            return Some(way);
        }
        way.push(next);
    }
}

/// Names in a row.
pub fn comma_list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 12;
    let mut all: Vec<&str> = names.take(SHOWN + 1).collect();
    if all.len() > SHOWN {
        all[SHOWN] = "…";
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> Ends {
        let end = |name: &str, takes, outputs: &[&str]| {
            let outputs = Some(outputs.iter().map(|output| (*output).to_owned()).collect());
            (name.to_owned(), EdgeEnd { outputs, takes })
        };
        BTreeMap::from([
            end("in.rx", false, &["out"]),
            end("out.tx", true, &[]),
            end("parse", true, &["out"]),
            end("acl", true, &["deny", "pass"]),
            end("tee", true, &["out", "copy"]),
            end("log", true, &[]),
        ])
    }

    fn of(lines: &[&str]) -> (Vec<String>, Vec<String>) {
        let mut faults = Vec::new();
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let edges = read(&lines, &ends(), &mut faults);
        check(&edges, &ends(), |_| false, &mut faults);
        let edge = |edge: &Edge| format!("{}[{}]>{}", edge.from, edge.output, edge.to);
        (
            edges.iter().map(edge).collect(),
            faults
                .iter()
                .map(|fault| format!("{} {}: {}. {}", fault.code, fault.at, fault.what, fault.fix))
                .collect(),
        )
    }

    const RIGHT: [&str; 4] =
        ["in.rx -> parse->acl", "acl.pass -> tee -> out.tx", "acl.deny -> log", "tee.copy -> log"];

    #[test]
    fn rows_and_outputs_are_read() {
        let (edges, faults) = of(&RIGHT);
        assert_eq!(faults, Vec::<String>::new());
        let expected =
            ["in.rx[0]>parse", "parse[0]>acl", "acl[1]>tee", "tee[0]>out.tx", "acl[0]>log", "tee[1]>log"];
        assert_eq!(edges, expected);
        // The same in one row.
        let (row, _) =
            of(&["in.rx -> parse -> acl.pass -> tee -> out.tx", "acl.deny -> log", "tee.copy -> log"]);
        assert_eq!(row.len(), 6);
    }

    #[test]
    fn each_fault_is_named_with_place_and_remedy() {
        for (wrong, said) in [
            (
                &["in.rx -> parse"][..],
                &["\"parse\" leads nowhere", "\"deny\" of \"acl\" leads nowhere", "nothing leads to \"log\""]
                    [..],
            ),
            (
                &["in.rx -> parze"],
                &[
                    "ND-104-06 edges[0]: there is no element and no port queue \"parze\". Did you mean \"parse\"?",
                ],
            ),
            (
                &["acl -> log"],
                &["edges[0]: \"acl\" has several outputs. Say which: acl. and one of deny, pass"],
            ),
            (&["acl.dney -> log"], &["edges[0]: \"acl\" has no output \"dney\". Did you mean acl.deny?"]),
            (&["log -> tee"], &["edges[0]: \"log\" has no outputs"]),
            (&["parse -> in.rx"], &["edges[0]: \"in.rx\" takes no packets"]),
            (&["parse acl"], &["ND-104-04 edges[0]: \"parse acl\" does not say what leads where"]),
            (&["parse -> -> acl"], &["does not say what leads where"]),
            (
                &["parse -> acl", "parse -> tee"],
                &[
                    "ND-104-33 edges[1]: output \"out\" of \"parse\" is connected already, by edges[0]",
                    "kind tee",
                ],
            ),
            (&["parse -> tee -> parse"], &["round for ever: parse -> tee -> parse"]),
        ] {
            let (_, faults) = of(wrong);
            let all = faults.join("\n");
            assert!(said.iter().all(|said| all.contains(said)), "{wrong:?}: {all}");
        }
    }
}
