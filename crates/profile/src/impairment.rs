//! A path made as bad as wanted: what is asked for, as data with units.
//!
//! A packet goes through a direction in this order, as it would through a real path:
//!
//! ```text
//! bottleneck (queue, then the line at its rate) → lost? → corrupted? duplicated? reordered? → delay
//! ```
//! So a packet that is lost has used the bottleneck, and one that the bottleneck dropped is not counted as
//! lost. All of it counts packets as they are on the wire, also when a kernel hands them over as one
//! super-segment.

pub mod preset;

use protocol::problem::Problem;
use protocol::unit::{BitRate, Interval, Share, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a link treats packets, in both directions.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LinkSpec {
    /// The same seed gives the same decisions for the same packets. Default 0.
    pub seed: u64,
    /// From end a to end b. Default: nothing is impaired.
    pub a_to_b: Impairment,
    /// From end b to end a. Default: nothing is impaired.
    pub b_to_a: Impairment,
    /// Changes while it runs. Default: none.
    pub timeline: Timeline,
}

/// Parameters that change by themselves.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Timeline {
    /// What changes when; in order of time.
    pub steps: Vec<Step>,
    /// Begin again from the start after this long. Default: the last step stays.
    pub repeat: Option<Interval>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Time since the parameters were set.
    pub at: Interval,
    /// All that now holds from a to b. Default: stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a_to_b: Option<Impairment>,
    /// All that now holds from b to a. Default: stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b_to_a: Option<Impairment>,
}

/// How one direction changes by itself.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DirectionTimeline {
    /// What changes when; in order of time.
    pub steps: Vec<DirectionStep>,
    /// Begin again from the start after this long. Default: the last step stays.
    pub repeat: Option<Interval>,
}

/// One change of one direction.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DirectionStep {
    /// Time since the start of the run.
    pub at: Interval,
    /// All that now holds.
    pub impair: Impairment,
}

/// What is done to packets of one direction. Without anything named, they pass as they are.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Impairment {
    /// How long a packet is on its way. Default: no time.
    pub delay: Delay,
    /// Whether packets whose delay is drawn shorter overtake those before. Default `false`: order is kept.
    pub overtaking: bool,
    /// Packets lost. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Packets that arrive twice. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<Share>,
    /// Packets of which one bit is flipped; checksums stay, so that the receiver sees it. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<Share>,
    /// Packets held back until others have passed. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// The slowest link of the path. Default: none, any rate passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<Bottleneck>,
}

/// How long packets are on their way.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Delay {
    /// Always the same.
    Constant(Interval),
    /// Anything from `from` to `to`, equally likely.
    Uniform(Uniform),
    /// The normal distribution; where it would be negative, zero.
    Normal(Normal),
    /// The Pareto distribution: a least delay with a heavy tail.
    Pareto(Pareto),
    /// A table: delays at equally spaced quantiles, the least first and the greatest last; linear between.
    Quantiles(Vec<Interval>),
    /// Measured delays, each equally likely.
    Samples(Vec<Interval>),
}

impl Default for Delay {
    fn default() -> Self {
        Self::Constant(Interval::default())
    }
}

/// A range of delays.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Uniform {
    /// The least.
    pub from: Interval,
    /// The greatest.
    pub to: Interval,
}

/// A bell curve of delays.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Normal {
    /// The mean.
    pub mean: Interval,
    /// The standard deviation.
    pub deviation: Interval,
}

/// Heavy-tailed delays: P(delay > x) = (least / x)^shape.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pareto {
    /// The least delay.
    pub least: Interval,
    /// The tail's exponent; the smaller the heavier. The mean is `least * shape / (shape - 1)` for shapes
    /// over 1.
    pub shape: f64,
    /// Greater draws are cut to this. Default `10s`.
    #[serde(default = "longest")]
    pub most: Interval,
}

fn longest() -> Interval {
    Interval::secs(10)
}

/// Which packets are lost.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Each packet with the same probability, whatever happened to the others.
    Independent(Share),
    /// In bursts: the model of Gilbert and Elliott.
    GilbertElliott(GilbertElliott),
    /// Every n-th packet of the direction: numbers n, 2n, 3n, …
    Periodic(u64),
    /// The packets of these numbers; the first of the direction has number 1.
    List(Vec<u64>),
}

/// Two states, good and bad. A packet is first lost or not by the share of the state, then the state changes
/// or not.
///
/// The share lost is `(leave_bad * lost_good + enter_bad * lost_bad) / (enter_bad + leave_bad)`, the mean
/// stay in the bad state `1 / leave_bad` packets.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    /// Probability per packet to go from good to bad.
    pub enter_bad: Share,
    /// Probability per packet to go from bad to good.
    pub leave_bad: Share,
    /// Share lost in the bad state. Default `100%`: the simple Gilbert model.
    #[serde(default = "all")]
    pub lost_bad: Share,
    /// Share lost in the good state. Default `0%`.
    #[serde(default)]
    pub lost_good: Share,
}

fn all() -> Share {
    Share::ALL
}

/// Which packets are held back, and how far.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// The share held back.
    pub share: Share,
    /// How far.
    pub by: ReorderBy,
}

/// How far a packet is held back.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReorderBy {
    /// Until that many later packets have passed; where no more come, for 100 ms.
    Packets(u32),
    /// For that much longer than the others.
    Time(Interval),
}

/// A link of limited rate, and the queue before it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bottleneck {
    /// Bits per second on the wire: the frame with its check sequence, preamble and gap, 24 bytes more than
    /// the frame that the host sees, and at least 84 in all.
    pub rate: BitRate,
    /// Who is dropped when packets come faster. Default: those that find 1000 packets waiting.
    #[serde(default)]
    pub queue: Queue,
}

/// Who is dropped when packets come faster than they leave.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// Those that find the queue full.
    TailDrop(Limit),
    /// Random early detection (Floyd and Jacobson 1993): the fuller the queue on average, the likelier.
    Red(Red),
    /// Controlled delay (RFC 8289): the head, when packets have waited too long for too long.
    Codel(Codel),
}

impl Default for Queue {
    fn default() -> Self {
        Self::TailDrop(Limit::default())
    }
}

/// How much may wait.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// That many packets.
    Packets(u32),
    /// That many bytes on the wire.
    Bytes(Size),
}

impl Default for Limit {
    fn default() -> Self {
        Self::Packets(1000)
    }
}

/// Parameters of RED, by their names in the paper.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Red {
    /// What may wait at most.
    pub limit: Limit,
    /// Mean queue below which nothing is dropped (min_th), as a share of `limit`.
    pub min: Share,
    /// Mean queue from which on everything is dropped (max_th), as a share of `limit`.
    pub max: Share,
    /// Share dropped just below `max` (max_p). Default `2%`.
    #[serde(default = "max_p")]
    pub max_p: Share,
    /// Weight of the newest length in the mean (w_q). Default `0.2%`.
    #[serde(default = "weight")]
    pub weight: Share,
}

/// The paper's section 6: "max_p = 1/50", w_q at least 0.001, 0.002 in its simulations.
fn max_p() -> Share {
    "2%".parse().unwrap_or(Share::ALL)
}

fn weight() -> Share {
    "0.2%".parse().unwrap_or(Share::ALL)
}

/// Parameters of CoDel, RFC 8289 section 4.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Codel {
    /// Acceptable standing delay. Default `5ms`.
    pub target: Interval,
    /// How long it may be exceeded: about the longest round trip. Default `100ms`.
    pub interval: Interval,
    /// What may wait at most. Default 1000 packets.
    pub limit: Limit,
}

impl Default for Codel {
    fn default() -> Self {
        Self { target: Interval::ms(5), interval: Interval::ms(100), limit: Limit::default() }
    }
}

/// The longest delay. More would need more memory than a path ever has packets on it.
pub const DELAY_MAX: Interval = Interval::secs(60);
/// Longest table of delays.
const TABLE_MAX: usize = 1 << 20;
/// Most packets that a reordered one may be held back by.
pub const BEHIND_MAX: u32 = 1000;
/// Most steps of a timeline.
pub const STEPS_MAX: usize = 1 << 20;
/// Shortest round of a timeline that repeats.
const REPEAT_MIN: Interval = Interval::ms(1);
/// Most that may wait: packets.
const LIMIT_MAX: u32 = 1 << 20;

impl LinkSpec {
    /// Whether the values make sense, and make sense together.
    pub fn check(&self) -> Result<(), Problem> {
        self.a_to_b.check().map_err(|p| p.under("a_to_b"))?;
        self.b_to_a.check().map_err(|p| p.under("b_to_a"))?;
        self.timeline.check().map_err(|p| p.under("timeline"))
    }
}

/// Whether steps at these times come in order, and the next round after them.
fn check_times(
    steps: impl ExactSizeIterator<Item = Interval>,
    repeat: Option<Interval>,
) -> Result<(), Problem> {
    let mut last = Interval::default();
    let count = steps.len();
    let what = || format!("{count} steps");
    Problem::unless(count <= STEPS_MAX, "steps", what, format!("give at most {STEPS_MAX}"))?;
    for (i, at) in steps.enumerate() {
        let late = || format!("{at} comes after {last}");
        Problem::unless(at >= last, &format!("steps[{i}].at"), late, "put the steps in order of time")?;
        last = at;
    }
    let Some(repeat) = repeat else { return Ok(()) };
    let what = || format!("{repeat} is not longer than the last step's {last}");
    Problem::unless(repeat > last, "repeat", what, "begin again after the last step")?;
    let what = || format!("{repeat} is too short");
    Problem::unless(repeat >= REPEAT_MIN, "repeat", what, format!("use at least {REPEAT_MIN}"))
}

impl Timeline {
    fn check(&self) -> Result<(), Problem> {
        check_times(self.steps.iter().map(|step| step.at), self.repeat)?;
        for (i, step) in self.steps.iter().enumerate() {
            for (name, way) in [("a_to_b", &step.a_to_b), ("b_to_a", &step.b_to_a)] {
                let under = |p: Problem| p.under(name).under(&format!("steps[{i}]"));
                way.as_ref().map_or(Ok(()), Impairment::check).map_err(under)?;
            }
        }
        Ok(())
    }
}

impl DirectionTimeline {
    /// Whether the values make sense, and make sense together.
    pub fn check(&self) -> Result<(), Problem> {
        check_times(self.steps.iter().map(|step| step.at), self.repeat)?;
        let mut steps = self.steps.iter().enumerate();
        steps
            .try_for_each(|(i, step)| step.impair.check().map_err(|p| p.under(&format!("steps[{i}].impair"))))
    }
}

impl Impairment {
    /// Whether the values make sense, and make sense together.
    pub fn check(&self) -> Result<(), Problem> {
        self.delay.check().map_err(|p| p.under("delay"))?;
        if let Some(loss) = &self.loss {
            loss.check().map_err(|p| p.under("loss"))?;
        }
        if let Some(Reorder { by, .. }) = &self.reorder {
            by.check().map_err(|p| p.under("reorder.by"))?;
        }
        if let Some(bottleneck) = &self.bottleneck {
            bottleneck.queue.check().map_err(|p| p.under("bottleneck.queue"))?;
        }
        Ok(())
    }
}

impl Delay {
    fn check(&self) -> Result<(), Problem> {
        let short = |key: &str, delay: Interval| {
            let fix = format!("use at most {DELAY_MAX}");
            Problem::unless(delay <= DELAY_MAX, key, || format!("{delay} is too long"), fix)
        };
        match self {
            Self::Constant(delay) => short("constant", *delay),
            Self::Uniform(Uniform { from, to }) => {
                let what = || format!("{to} is less than from, {from}");
                Problem::unless(from <= to, "uniform.to", what, "give the greater of the two")?;
                short("uniform.to", *to)
            }
            Self::Normal(Normal { mean, deviation }) => {
                short("normal.mean", *mean)?;
                short("normal.deviation", *deviation)
            }
            Self::Pareto(Pareto { least, shape, most }) => {
                let what = || format!("{shape} is no exponent of a tail");
                let shaped = (0.1..=100.0).contains(shape);
                Problem::unless(shaped, "pareto.shape", what, "use 0.1 to 100")?;
                let what = || format!("{most} is less than least, {least}");
                Problem::unless(least <= most, "pareto.most", what, "give the greater of the two")?;
                let zero = || "is zero: the distribution has no tail".into();
                Problem::unless(least.ns() > 0, "pareto.least", zero, "give the least delay")?;
                short("pareto.most", *most)
            }
            Self::Quantiles(table) => {
                Self::check_table("quantiles", table, 2)?;
                let ordered = table.is_sorted();
                let what = || "a greater delay stands before a smaller one".into();
                Problem::unless(ordered, "quantiles", what, "put the delays in order")
            }
            Self::Samples(table) => Self::check_table("samples", table, 1),
        }
    }

    fn check_table(key: &str, table: &[Interval], least: usize) -> Result<(), Problem> {
        let what = || format!("{} delays", table.len());
        let fits = (least..=TABLE_MAX).contains(&table.len());
        Problem::unless(fits, key, what, format!("give {least} to {TABLE_MAX}"))?;
        let long = table.iter().max().copied().unwrap_or_default();
        let what = || format!("{long} is too long");
        Problem::unless(long <= DELAY_MAX, key, what, format!("use at most {DELAY_MAX}"))
    }
}

impl Loss {
    fn check(&self) -> Result<(), Problem> {
        match self {
            Self::Independent(_) | Self::GilbertElliott(_) => Ok(()),
            Self::Periodic(every) => {
                let what = || "every 0th packet".into();
                Problem::unless(*every > 0, "periodic", what, "use 1 for all, 2 for every other, …")
            }
            Self::List(numbers) => {
                let what = || "numbers begin with 1, each greater than the one before".into();
                let rising = numbers.first() != Some(&0) && numbers.is_sorted_by(|a, b| a < b);
                Problem::unless(rising, "list", what, "put the numbers in order, each once")
            }
        }
    }
}

impl ReorderBy {
    fn check(&self) -> Result<(), Problem> {
        match self {
            Self::Packets(n) => {
                let what = || format!("{n} is out of range");
                Problem::unless(
                    (1..=BEHIND_MAX).contains(n),
                    "packets",
                    what,
                    format!("use 1 to {BEHIND_MAX}"),
                )
            }
            Self::Time(time) => {
                let what = || format!("{time} is out of range");
                let fits = time.ns() > 0 && *time <= DELAY_MAX;
                Problem::unless(fits, "time", what, format!("use more than 0s, at most {DELAY_MAX}"))
            }
        }
    }
}

impl Queue {
    fn check(&self) -> Result<(), Problem> {
        match self {
            Self::TailDrop(limit) => limit.check().map_err(|p| p.under("tail_drop")),
            Self::Red(red) => {
                red.limit.check().map_err(|p| p.under("red.limit"))?;
                let what = || format!("{} is not more than min, {}", red.max, red.min);
                Problem::unless(red.min < red.max, "red.max", what, "use at least twice min")?;
                let weighs = red.weight > Share::NONE;
                let what = || "gives the newest length no weight".into();
                Problem::unless(weighs, "red.weight", what, "use 0.1% or more")
            }
            Self::Codel(codel) => {
                codel.limit.check().map_err(|p| p.under("codel.limit"))?;
                let what = || format!("{} is not less than interval, {}", codel.target, codel.interval);
                let less = codel.target < codel.interval;
                Problem::unless(less, "codel.target", what, "use 5% to 10% of interval")
            }
        }
    }
}

impl Limit {
    fn check(&self) -> Result<(), Problem> {
        match self {
            Self::Packets(n) => {
                let what = || format!("{n} is out of range");
                let fits = (1..=LIMIT_MAX).contains(n);
                Problem::unless(fits, "packets", what, format!("use 1 to {LIMIT_MAX}"))
            }
            Self::Bytes(size) => {
                let what = || format!("{size} holds not one whole packet");
                Problem::unless(size.0 >= 1538, "bytes", what, "use 1538B or more")
            }
        }
    }
}

#[cfg(test)]
mod tests;
