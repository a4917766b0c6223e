//! Parameters of the `script` model.

use super::compile::{Op, STEPS_MAX, compile};
use super::step::Step;
use super::{Config, DESCRIPTION};
use crate::data::Data;
use crate::describe::{Description, ModelKind, ModelParams};
use crate::problem::Problem;
use crate::target::{Carrier, Target};
use crate::unit::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of the `script` model.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// What to do once connected, in order. Default: send `hello {seq}` and a line end, once.
    pub steps: Vec<Step>,
    /// Longest wait for the connection and for each `expect`; the flow fails then. Default `5s`.
    pub timeout: Interval,
    /// The profile's tables, which templates may name; none while only the form is checked.
    #[serde(skip)]
    #[schemars(skip)]
    pub data: Option<Data>,
}

impl Default for Params {
    fn default() -> Self {
        Self { steps: vec![Step::Send("hello {seq}\\n".into())], timeout: Interval::secs(5), data: None }
    }
}

impl ModelKind for Params {
    const DESCRIPTION: &'static Description = &DESCRIPTION;
    type Config = Config;

    fn compile(&self, target: &Target) -> Result<Config, Problem> {
        let datagrams = target.scheme.carrier == Carrier::Datagram;
        Ok(Config { ops: self.ops()?.into(), timeout: self.timeout.0, datagrams })
    }
}

impl ModelParams for Params {
    fn about(&self) -> &'static Description {
        &DESCRIPTION
    }

    fn check(&self) -> Result<(), Problem> {
        self.ops().map(drop)
    }

    fn set_data(&mut self, data: &Data) {
        self.data = Some(data.clone());
    }

    fn awaits_answers(&self, carrier: Carrier) -> bool {
        carrier == Carrier::Stream || self.expects()
    }

    fn expressions(&self) -> Option<(&'static str, usize)> {
        Some(("steps", expressions(&self.steps)))
    }

    #[cfg(any(test, feature = "testing"))]
    fn for_noise(&mut self, choice: u8, scheme: &mut crate::target::Scheme) -> usize {
        let round = vec![
            Step::Send("a{seq}".into()),
            Step::Expect("a".into()),
            Step::ExpectRegex("[0-9]+b".into()),
            Step::Delay(Interval::ms(1)),
            Step::ExpectHex("00ff".into()),
        ];
        let count = 2 * u32::from(crate::describe::bit(choice, 2));
        self.steps = vec![Step::Repeat(super::step::Repeat { count, steps: round })];
        *scheme = super::SCHEMES[usize::from(choice & 3) % super::SCHEMES.len()];
        super::KEPT_MAX
    }
}

/// How many regular expressions there are in `steps`.
fn expressions(steps: &[Step]) -> usize {
    let of = |step: &Step| match step {
        Step::ExpectRegex(_) => 1,
        Step::Repeat(repeat) => expressions(&repeat.steps),
        _ => 0,
    };
    steps.iter().map(of).sum()
}

impl Params {
    /// Whether any step waits for the other side.
    fn expects(&self) -> bool {
        fn any(steps: &[Step]) -> bool {
            steps.iter().any(|step| match step {
                Step::Expect(_) | Step::ExpectRegex(_) | Step::ExpectHex(_) => true,
                Step::Repeat(repeat) => any(&repeat.steps),
                Step::Send(_) | Step::SendHex(_) | Step::Delay(_) | Step::Timeout(_) => false,
            })
        }
        any(&self.steps)
    }

    /// The steps, ready to play.
    pub fn ops(&self) -> Result<Vec<Op>, Problem> {
        let waits = self.timeout > Interval::default();
        Problem::unless(waits, "timeout", || "is zero".into(), "use 5s")?;
        let mut ops = Vec::new();
        compile(&self.steps, 0, self.data.as_ref(), &mut self.timeout.0.clone(), &mut ops)
            .map_err(|p| p.under("steps"))?;
        let few = ops.len() <= STEPS_MAX;
        Problem::unless(
            few,
            "steps",
            || format!("are {}", ops.len()),
            format!("use at most {STEPS_MAX}, or repeat"),
        )?;
        Ok(ops)
    }
}
