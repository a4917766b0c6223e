//! The daemon program's commands for SIP: conformance tests, and a server to test against.

mod conformance;
mod serve;

use system::Registry;
use system::command::{Command, Flag};

/// SIP: its commands. Its model of load is in the registry of models.
pub fn register(registry: &mut Registry) {
    registry.add_commands([
        Command {
            name: "sip-conformance",
            about: "Play conformance tests against a SIP server: a request as JSON on standard input, verdicts as JSON on standard output",
            flags: &[Flag { name: "messages", about: "List the messages of RFC 4475 that a request may name" }],
            run: conformance::run,
        },
        Command {
            name: "sip-serve",
            about: "Serve SIP as registrar, proxy, redirect server or UAS: settings as JSON on standard input, counters on standard output",
            flags: &[],
            run: serve::run,
        },
    ]);
}
