//! Sorts packets by rules: the first that matches says by which output a packet leaves.

pub mod expression;
pub mod facts;
pub mod program;

use crate::kind::{Build, ElementKind, is_name, static_names};
use dpdk::Batch;
use engine::{Cx, Element, ElementInfo};
use expression::Expression;
use facts::Facts;
use profile::Error as SetupError;
use program::Program;
use protocol::problem::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most rules.
const RULES: usize = 4096;
/// Most outputs.
const OUTPUTS: usize = 64;
/// No rule matched.
const NO_RULE: usize = 0;

/// Sorts packets by rules, of which the first that matches counts: a stateless 5-tuple firewall. What no rule matches is
/// dropped as `no_rule`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The rules, in order, at most 4096.
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Which packets: `any`, `tcp dst port 22`, `udp src port 53`, `port 8000-8080`, `src 10.0.0.0/8`, `dst 2001:db8::/32`,
    /// `host 10.0.0.1`, `vlan 100`, `inner vlan 7`, `tagged`, `untagged`, `ip`, `ip4`, `ip6`, `icmp`, `icmp6`, `sctp`, `arp`,
    /// `ip proto 47`, `ethertype 0x88cc`, `fragment`; joined by `and` (or nothing), `or`, `not` and brackets.
    #[serde(rename = "match")]
    pub matches: String,
    /// The output by which they leave. Outputs are those that the rules name, in that order.
    pub to: String,
}

impl Options {
    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for rule in &self.rules {
            if !names.contains(&rule.to) {
                names.push(rule.to.clone());
            }
        }
        names
    }

    fn program(&self) -> Option<Program> {
        let names = self.names();
        let rule = |rule: &Rule| {
            let answer = names.iter().position(|name| *name == rule.to)?;
            Some((Expression::parse(&rule.matches).ok()?, answer as u16))
        };
        Program::compile(&self.rules.iter().map(rule).collect::<Option<Vec<_>>>()?)
    }
}

impl ElementKind for Options {
    const KIND: &'static str = "classifier";
    const DROPS: &'static [&'static str] = &["no_rule"];
    const REPLICABLE: bool = true;
    const EXAMPLE: &'static str =
        r#"{"rules": [{"match": "tcp dst port 22", "to": "deny"}, {"match": "any", "to": "pass"}]}"#;

    fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.rules.is_empty() || self.rules.len() > RULES {
            let what = format!("{} rules are too few or too many", self.rules.len());
            problems.push(Problem::new("rules", what, format!("Give 1 to {RULES}")));
            return problems;
        }
        for (i, rule) in self.rules.iter().enumerate() {
            if let Err(fault) = Expression::parse(&rule.matches) {
                problems.push(Problem::new(format!("rules[{i}].match"), fault.what, fault.fix));
            }
            if !is_name(&rule.to) {
                let what = format!("{:?} cannot be an output", rule.to);
                let fix = "Use 1 to 64 letters, digits, - and _";
                problems.push(Problem::new(format!("rules[{i}].to"), what, fix));
            }
        }
        let outputs = self.names().len();
        if outputs > OUTPUTS {
            let what = format!("{outputs} outputs are too many");
            problems.push(Problem::new("rules", what, format!("Use at most {OUTPUTS}")));
        }
        if problems.is_empty() && self.program().is_none() {
            let what = format!("the rules have more than {} tests", program::TESTS);
            problems.push(Problem::new("rules", what, "Put some behind a second classifier"));
        }
        problems
    }

    fn outputs(&self) -> Vec<String> {
        self.names()
    }

    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        let program = self.program().ok_or_else(|| cx.fault("rules", "the rules cannot be compiled"))?;
        Ok(Box::new(Classifier { program, outputs: static_names(&self.names()) }))
    }
}

/// Element: hands each packet to the output of the first rule that it meets.
#[derive(Debug)]
pub struct Classifier {
    program: Program,
    outputs: &'static [&'static str],
}

impl Element for Classifier {
    fn about(&self) -> ElementInfo {
        ElementInfo {
            kind: Options::KIND,
            takes: true,
            outputs: self.outputs,
            drops: Options::DROPS,
            polled: false,
        }
    }

    #[inline]
    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        let needs = self.program.needs();
        batch.filter_map(|mbuf| {
            let facts = Facts::of(mbuf.data(), mbuf.meta(), needs);
            match self.program.run(&facts) {
                Some(0) => Some(mbuf),
                Some(output) => {
                    cx.emit(output, mbuf);
                    None
                }
                None => {
                    cx.count(NO_RULE, 1);
                    None
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::frame::Flow;
    use packet::signature::Signature;
    use packet::{Program as Frame, ethernet::Tags};
    use serde_json::{from_value, json};

    fn options(rules: &[(&str, &str)]) -> Options {
        let rules: Vec<_> = rules.iter().map(|(matches, to)| json!({"match": matches, "to": to})).collect();
        from_value(json!({"rules": rules})).expect("rules")
    }

    fn frame(from: &str, to: &str, vlans: &[u16]) -> Vec<u8> {
        let flow = Flow {
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            source: from.parse().expect("an address"),
            destination: to.parse().expect("an address"),
        };
        let mut frame = vec![0; 100];
        Frame::udp(&flow, 100).expect("it fits").write(
            &mut frame,
            0,
            &Signature { stream: 1, sequence: 2, sent_ns: 3 },
        );
        frame.splice(12..12, Tags::vlans(vlans).expect("at most two").bytes().iter().copied());
        frame
    }

    fn sorted(options: &Options, frame: &[u8]) -> Option<String> {
        let program = options.program().expect("rules");
        let facts = Facts::of(frame, None, program.needs());
        program.run(&facts).map(|output| options.names()[output].clone())
    }

    #[test]
    fn the_first_rule_that_matches_says_where() {
        let acl = options(&[
            ("udp dst port 22", "deny"),
            ("src 10.0.0.0/8 and dst 192.0.2.1", "lan"),
            ("vlan 100 inner vlan 7", "qinq"),
            ("src 2001:db8::/32", "six"),
            ("tcp or arp", "deny"),
            ("src port 1000-2000", "lan"),
        ]);
        assert_eq!(acl.outputs(), ["deny", "lan", "qinq", "six"]);
        assert!(acl.check().is_empty());
        let sorted = |from, to, vlans: &[u16]| sorted(&acl, &frame(from, to, vlans)).unwrap_or_default();
        assert_eq!(sorted("10.0.0.1:5", "192.0.2.1:22", &[]), "deny");
        assert_eq!(sorted("10.0.0.1:5", "192.0.2.1:23", &[]), "lan");
        assert_eq!(sorted("10.0.0.1:5", "192.0.2.2:23", &[]), "");
        assert_eq!(sorted("11.0.0.1:1999", "192.0.2.1:23", &[]), "lan");
        assert_eq!(sorted("11.0.0.1:1", "192.0.2.1:23", &[100, 7]), "qinq");
        assert_eq!(sorted("11.0.0.1:1", "192.0.2.1:23", &[100]), "");
        assert_eq!(sorted("11.0.0.1:1", "192.0.2.1:23", &[7, 100]), "");
        assert_eq!(sorted("[2001:db8::1]:5", "[::1]:6", &[]), "six");
        assert_eq!(sorted("[2001:db9::1]:5", "[::1]:6", &[]), "");
    }

    #[test]
    fn what_is_cut_or_a_fragment_has_no_ports() {
        let acl = options(&[("dst port 7", "port"), ("fragment", "fragment"), ("any", "rest")]);
        let mut whole = frame("10.0.0.1:5", "10.0.0.2:7", &[]);
        assert_eq!(sorted(&acl, &whole).as_deref(), Some("port"));
        assert_eq!(sorted(&acl, &whole[..30]).as_deref(), Some("rest"));
        assert_eq!(sorted(&acl, &[]).as_deref(), Some("rest"));
        whole[20..22].copy_from_slice(&1u16.to_be_bytes());
        whole[24..26].fill(0);
        let sum = packet::checksum::of(&whole[14..34]).to_be_bytes();
        whole[24..26].copy_from_slice(&sum);
        assert_eq!(sorted(&acl, &whole).as_deref(), Some("fragment"));
    }

    #[test]
    fn each_wrong_rule_is_named() {
        let bad = options(&[("tpc", "a"), ("any", "b"), ("src x", "a b")]);
        let keys: Vec<_> = bad.check().into_iter().map(|problem| problem.key).collect();
        assert_eq!(keys, ["rules[0].match", "rules[2].match", "rules[2].to"]);
        assert_eq!(options(&[]).check().len(), 1);
        let many: Vec<String> = (0..=OUTPUTS).map(|i| format!("o{i}")).collect();
        let rules: Vec<_> = many.iter().map(|to| ("any", to.as_str())).collect();
        assert_eq!(options(&rules).check().len(), 1);
        assert!(options(&rules[1..]).check().is_empty());
    }
}
