//! How a test ends that neither passed nor failed. The test runner knows no such end, so the test says it in a line of its
//! own and returns; `./do test` counts these lines apart and bounds them.
//!
//! *Skipped*: the machine lacks what the test needs. *Inconclusive*: the machine took away the time that the test measures,
//! which has a cause that was measured: steal, or a run that is invalid for lateness or CPU. A wrong result is neither.

use std::fmt::Display;
use std::io::Write;

/// Share of CPU time taken by the host from which on a measurement of time says nothing.
const STEAL: f64 = 0.05;
/// Why a run is invalid when the machine gives it, or its server, no time: offered less, late, starved, connections busy.
const OF_TIME: [&str; 4] = ["ND-90-01", "ND-90-02", "ND-90-03", "ND-90-08"];

/// Say it past the test runner, which keeps what passing tests print to itself.
fn print(what: &str, why: &dyn Display) {
    let thread = std::thread::current();
    let line = format!("RUST {what}: {}: {why}\n", thread.name().unwrap_or("a test"));
    let _closed = std::io::stderr().write_all(line.as_bytes());
}

/// This test cannot be run here, for `why`: `iperf3 is not installed`. The test returns after that.
pub fn skipped(why: impl Display) {
    print("SKIPPED", &why);
}

/// Move this thread, and what it starts from now on, into a new network namespace, which ends with them. Else: why not.
pub fn unshare_network() -> Result<(), String> {
    if std::env::var_os("NETDYNO_TESTS").is_some_and(|which| which == "quick") {
        return Err("quick tests make no network namespaces".into());
    }
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
        .map_err(|why| format!("a network namespace needs root ({why})"))
}

/// [`unshare_network`]; false, and the test is skipped, where that cannot be.
pub fn network_namespace() -> bool {
    unshare_network().map_err(skipped).is_ok()
}

/// What the host takes of this machine's CPU time (steal, proc(5)) since a test began.
#[derive(Debug)]
pub struct Machine([u64; 2]);

impl Machine {
    /// Look from now on.
    pub fn watch() -> Self {
        Self(ticks())
    }

    /// The share of CPU time that the host took.
    pub fn steal(&self) -> f64 {
        share(self.0, ticks())
    }

    /// Whether the host took so much that what was timed says nothing; said if so. Ask before a time is judged.
    pub fn disturbed(&self) -> bool {
        let share = self.steal();
        let disturbed = share >= STEAL;
        if disturbed {
            print("INCONCLUSIVE", &format_args!("steal {:.0} %", 100.0 * share));
        }
        disturbed
    }

    /// Whether a run with these reasons of invalidity (code and words) had too little time, which is said. Any other reason
    /// is a failure.
    pub fn starved<'a>(&self, reasons: impl IntoIterator<Item = (&'a str, &'a str)>) -> bool {
        let why = want_of_time(reasons);
        if let Some(why) = &why {
            print("INCONCLUSIVE", &format_args!("{why} (steal {:.0} %)", 100.0 * self.steal()));
        }
        why.is_some()
    }
}

/// The first of the reasons, if they are all of time.
fn want_of_time<'a>(reasons: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<String> {
    let mut first = None;
    for (code, what) in reasons {
        assert!(OF_TIME.contains(&code), "the run is invalid for a fault: {code}: {what}");
        first.get_or_insert_with(|| format!("{code}: {what}"));
    }
    first
}

/// Of all processors since boot: all together, and those that the host took.
fn ticks() -> [u64; 2] {
    parse(&std::fs::read_to_string("/proc/stat").expect("proc is mounted"))
}

fn parse(stat: &str) -> [u64; 2] {
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).take(8).map(|word| word.parse().unwrap_or_default()).collect();
    [ticks.iter().sum(), ticks.get(7).copied().unwrap_or_default()]
}

fn share(since: [u64; 2], now: [u64; 2]) -> f64 {
    let whole = now[0].saturating_sub(since[0]);
    if whole == 0 { 0.0 } else { now[1].saturating_sub(since[1]) as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_of_the_first_line() {
        let before = parse("cpu  100 0 50 800 10 0 20 20 7 7\ncpu0 1 2 3 4 5 6 7 8 9 10\n");
        assert_eq!(before, [1000, 20]);
        let after = parse("cpu  150 0 50 830 10 0 20 40 9 9\n");
        assert_eq!(share(before, after), 0.2);
        assert_eq!(share(after, after), 0.0);
    }

    #[test]
    fn only_want_of_time_is_inconclusive() {
        assert_eq!(want_of_time([]), None);
        let late = [("ND-90-02", "generator lateness p99 21 ms"), ("ND-90-03", "waited")];
        assert_eq!(want_of_time(late).as_deref(), Some("ND-90-02: generator lateness p99 21 ms"));
    }

    #[test]
    #[should_panic(expected = "invalid for a fault: ND-90-04")]
    fn a_fault_is_never_inconclusive() {
        want_of_time([("ND-90-03", "waited"), ("ND-90-04", "lost its own packets")]);
    }
}
