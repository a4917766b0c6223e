//! Conformance tests of SIP servers: test files in, verdicts and ladders out.
//!
//! A [`Test`] has user agents and steps: messages that they send, and messages that they expect of the server. [`run`] plays
//! tests one after the other over sockets of the kernel, and returns a verdict for each: pass, fail with the clause that was
//! broken, warning where the clause only recommends it, or inconclusive where a precondition of the test was not met. [`torture`] does the same with the messages of RFC 4475.

mod address;
mod agent;
mod check;
mod draft;
mod field;
mod file;
mod ladder;
mod names;
mod play;
mod step;
pub mod torture;
mod wait;

pub use file::{Account, FileError, Request, Test, Transport};
pub use ladder::Arrow;

use serde::Serialize;

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every expectation was met.
    Pass,
    /// Something that the standard recommends (SHOULD) was not met; all that it demands was.
    Warning,
    /// An expectation was not met.
    Fail,
    /// A precondition was not met: the test says nothing about the server.
    Inconclusive,
}

/// Result of one test.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Test.
    pub id: String,
    /// Title of the test.
    pub title: String,
    /// Role of the server in the test.
    pub role: String,
    /// Clause of the standard that decides.
    pub clause: String,
    /// Verdict.
    pub verdict: Verdict,
    /// Why it did not pass; empty where it did.
    pub reason: String,
    /// Duration, ms.
    pub duration_ms: u64,
    /// Messages in the order of time.
    pub ladder: Vec<Arrow>,
}

/// Results of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Server, as `HOST:PORT`.
    pub server: String,
    /// Transport.
    pub transport: Transport,
    /// Results in the order of the tests.
    pub tests: Vec<Outcome>,
}

/// Tests in a row without any answer after which the others are not played.
const PATIENCE: u32 = 3;
/// Why a test was not played.
const SILENT: &str = "not played: the server answered nothing in the tests before";

/// Plays the tests of a request one after the other. `progress` gets each result as it comes.
pub fn run(request: &Request, mut progress: impl FnMut(&Outcome)) -> Result<Report, FileError> {
    let plans = request.tests.iter().map(Test::plan).collect::<Result<Vec<_>, _>>()?;
    let mut tests = Vec::new();
    let messages =
        request.torture.iter().map(|name| torture::Message::of(name).ok_or_else(|| FileError::torture(name)));
    let messages = messages.collect::<Result<Vec<_>, _>>()?;
    let mut silent = 0;
    let mut play = |outcome: &dyn Fn(bool) -> Outcome| {
        let outcome = outcome(silent < PATIENCE);
        let heard = outcome.ladder.iter().any(|arrow| arrow.from == "server");
        // A test that lacks an option of the run sends nothing.
        silent = if heard { 0 } else { silent + u32::from(!outcome.ladder.is_empty()) };
        progress(&outcome);
        tests.push(outcome);
    };
    for (test, plan) in request.tests.iter().zip(plans) {
        play(&|answers| if answers { play::play(request, test, &plan) } else { play::unplayed(test) });
    }
    for message in messages {
        play(&|answers| if answers { torture::play(request, message) } else { torture::unplayed(message) });
    }
    let server = address::host_port(request.server);
    Ok(Report { server, transport: request.transport, tests })
}
