//! Network namespaces of a test's own.

use std::process::{Child, Command};

/// Run `command` with its arguments, in the namespace of this thread.
pub fn sh(command: &str) {
    let mut words = command.split_whitespace();
    let program = words.next().expect("a command");
    let done = Command::new(program).args(words).output().unwrap_or_else(|e| panic!("{command}: {e}"));
    assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Move this thread, and what it starts from now on, into a new namespace. False, and the test is skipped, without the right to.
pub fn enter_new_namespace() -> bool {
    let alone = outcome::network_namespace();
    if alone {
        sh("ip link set lo up");
    }
    alone
}

/// Another host: a namespace at the other end of this one's interface `near`. Ours is 192.0.2.1 and 2001:db8::1,
/// its is 192.0.2.2 and 2001:db8::2 (RFC 5737, RFC 3849).
#[derive(Debug)]
pub struct Host(Child);

impl Host {
    /// Begin it; this thread must be in a new namespace ([`enter_new_namespace`]).
    #[expect(clippy::new_without_default, reason = "it starts a process")]
    pub fn new() -> Self {
        let host = Self(Command::new("unshare").args(["-n", "sleep", "900"]).spawn().expect("util-linux"));
        let space = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/net")).expect("a namespace");
        while space(&host.0.id().to_string()) == space("thread-self") {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        sh(&format!("ip link add near type veth peer name far netns {}", host.0.id()));
        for (at, other, end) in [(1, 2, "near"), (2, 1, "far")] {
            let run = |command: String| if end == "near" { sh(&command) } else { host.sh(&command) };
            run(format!("ip link set {end} address 02:00:00:00:00:0{at} up"));
            for (of, mask, more) in [("192.0.2.", 24, ""), ("2001:db8::", 64, "nodad")] {
                run(format!("ip address add {of}{at}/{mask} dev {end} {more}"));
                // nobody asks for them, so that nothing waits for an answer
                run(format!("ip neighbour add {of}{other} lladdr 02:00:00:00:00:0{other} dev {end}"));
            }
        }
        host
    }

    /// Run a command on it.
    pub fn sh(&self, command: &str) {
        sh(&format!("nsenter -t {} -n {command}", self.0.id()));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _gone = self.0.kill().and_then(|()| self.0.wait());
    }
}
