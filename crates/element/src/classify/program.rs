//! Rules compiled: single tests, each of which leads to another test or to an answer.

use crate::classify::expression::{Expression, Test};
use crate::classify::facts::{Facts, Needs};

/// This bit says that a target is an answer, and no test.
const ANSWER: u16 = 0x8000;
/// No rule matched.
const NONE: u16 = u16::MAX;
/// Most tests.
pub const TESTS: usize = ANSWER as usize;

/// A test, and where to go on.
#[derive(Debug, Clone, Copy)]
struct Step {
    test: Test,
    yes: u16,
    no: u16,
}

/// Rules in the form in which packets are matched.
#[derive(Debug, Clone)]
pub struct Program {
    steps: Vec<Step>,
    start: u16,
    needs: Needs,
}

impl Program {
    /// Of rules with their answers, below 32767; the first that matches counts. `None`: they have more than [`TESTS`] tests.
    pub fn compile(rules: &[(Expression, u16)]) -> Option<Self> {
        let mut program = Self { steps: Vec::new(), start: NONE, needs: Needs::default() };
        // From the last to the first: where one fails, the next one begins.
        for (expression, answer) in rules.iter().rev() {
            program.start = program.add(expression, answer | ANSWER, program.start)?;
        }
        Some(program)
    }

    /// Compile `expression` so that it leads to `yes` or `no`; where it begins.
    fn add(&mut self, expression: &Expression, yes: u16, no: u16) -> Option<u16> {
        match expression {
            Expression::Any => Some(yes),
            Expression::Not(inner) => self.add(inner, no, yes),
            Expression::And(a, b) => {
                let second = self.add(b, yes, no)?;
                self.add(a, second, no)
            }
            Expression::Or(a, b) => {
                let second = self.add(b, yes, no)?;
                self.add(a, yes, second)
            }
            Expression::Test(test) => {
                match test {
                    Test::Source(_) | Test::Destination(_) => self.needs.addresses = true,
                    Test::SourcePort(..) | Test::DestinationPort(..) => self.needs.ports = true,
                    _ => {}
                }
                let at = u16::try_from(self.steps.len()).ok().filter(|at| *at < ANSWER)?;
                self.steps.push(Step { test: *test, yes, no });
                Some(at)
            }
        }
    }

    /// What it wants to know of a packet.
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// The answer of the first rule that the packet meets. It ends: each step leads to one that was compiled before.
    #[inline]
    pub fn run(&self, facts: &Facts) -> Option<usize> {
        let mut at = self.start;
        while let Some(step) = self.steps.get(usize::from(at)) {
            at = if facts.passes(&step.test) { step.yes } else { step.no };
        }
        (at != NONE).then_some(usize::from(at & !ANSWER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::expression::Network;
    use dpdk::MetaFlags;
    use proptest::prelude::*;

    /// Few values, so that tests match often.
    fn facts() -> impl Strategy<Value = Facts> {
        let flags = (any::<[bool; 4]>()).prop_map(|[ip, v6, fragment, l4]| {
            MetaFlags::NONE
                .with_if(ip, MetaFlags::IP)
                .with_if(ip && v6, MetaFlags::V6)
                .with_if(ip && fragment, MetaFlags::FRAGMENT)
                .with_if(ip && l4, MetaFlags::L4)
        });
        let ends = (0u128..4, 0u128..4, proptest::option::of([0u16..4, 0u16..4]));
        (flags, 0u8..3, 0u16..3, [0u16..3, 0u16..3], 0u8..3, ends).prop_map(
            |(flags, protocol, kind, vlans, tagged, (source, destination, ports))| Facts {
                flags,
                protocol,
                kind,
                vlans,
                tagged,
                source,
                destination,
                ports,
            },
        )
    }

    fn test() -> impl Strategy<Value = Test> {
        let network = (any::<bool>(), 0u128..4, 0u128..4).prop_map(|(v6, bits, mask)| Network {
            v6,
            bits: bits & mask,
            mask,
        });
        let range = (0u16..4, 0u16..4).prop_map(|(a, b)| (a.min(b), a.max(b)));
        prop_oneof![
            Just(Test::Ip),
            Just(Test::Ip4),
            Just(Test::Ip6),
            Just(Test::Fragment),
            Just(Test::Tagged),
            (0u8..3).prop_map(Test::Protocol),
            (0u16..3).prop_map(Test::EtherType),
            (0u8..2, 0u16..3).prop_map(|(which, id)| Test::Vlan(which, id)),
            network.clone().prop_map(Test::Source),
            network.prop_map(Test::Destination),
            range.clone().prop_map(|(a, b)| Test::SourcePort(a, b)),
            range.prop_map(|(a, b)| Test::DestinationPort(a, b)),
        ]
    }

    fn expression() -> impl Strategy<Value = Expression> {
        let leaf = prop_oneof![1 => Just(Expression::Any), 8 => test().prop_map(Expression::Test)];
        leaf.prop_recursive(5, 24, 2, |inner| {
            let pair = (inner.clone(), inner.clone());
            prop_oneof![
                inner.prop_map(|e| Expression::Not(Box::new(e))),
                pair.clone().prop_map(|(a, b)| Expression::And(Box::new(a), Box::new(b))),
                pair.prop_map(|(a, b)| Expression::Or(Box::new(a), Box::new(b))),
            ]
        })
    }

    proptest! {
        /// Whatever the rules and the packet: the answer is that of the first rule whose words hold.
        #[test]
        fn compiled_rules_mean_what_their_words_mean(
            rules in proptest::collection::vec((expression(), 0u16..5), 0..6),
            packets in proptest::collection::vec(facts(), 1..40),
        ) {
            let program = Program::compile(&rules).expect("few tests");
            for facts in &packets {
                let naive = rules.iter().find(|(rule, _)| facts.satisfies(rule)).map(|(_, answer)| usize::from(*answer));
                prop_assert_eq!(program.run(facts), naive);
            }
        }
    }

    #[test]
    fn too_many_tests_are_refused() {
        let rule = |n: usize| (0..n).map(|_| (Expression::Test(Test::Ip), 0)).collect::<Vec<_>>();
        assert!(Program::compile(&rule(TESTS)).is_some());
        assert!(Program::compile(&rule(TESTS + 1)).is_none());
    }
}
