//! Notices that a port was lost while the run goes on: its interface deleted, its link down, its peer gone.
//!
//! Ports on kernel interfaces are asked of the kernel, as some of their drivers say "up" for ever; a tap may move to
//! another namespace, where only its own descriptor knows it; all others are asked of their driver.

use dpdk::Port;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use std::fs;

/// What became of a port that was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It can send and receive.
    Up,
    /// Nothing passes, but it may come back.
    Down,
    /// It does not exist any more.
    Gone,
}

/// How to find out.
#[derive(Debug, PartialEq, Eq)]
enum By {
    Driver,
    Kernel { index: u32, name: String },
    Tap { name: String },
}

/// Watches one port.
#[derive(Debug)]
pub struct Watch {
    port: Port,
    by: By,
    /// Lost is only what was there: a link may take seconds to come up.
    was_up: bool,
}

impl Watch {
    /// From now on.
    pub fn new(port: &Port) -> Self {
        let info = port.info().ok();
        let index = info.as_ref().map_or(0, |info| info.interface);
        let by = match interface_name(index) {
            None => By::Driver,
            Some(name) if info.is_some_and(|info| info.driver == "net_tap") => By::Tap { name },
            Some(name) => By::Kernel { index, name },
        };
        Self { port: port.clone(), by, was_up: false }
    }

    /// What happened, if the port was lost. When `patient`, a link that is down is no loss: it may come again.
    pub fn loss_reason(&mut self, patient: bool) -> Option<String> {
        let state = self.state();
        self.was_up |= state == State::Up;
        // an interface was there when its port was opened, whether its link was up or not
        let lost = state == State::Gone || state == State::Down && self.was_up && !patient;
        if !lost {
            return None;
        }
        Some(match (&self.by, state) {
            (By::Kernel { name, .. } | By::Tap { name }, State::Gone) => {
                format!("the interface {name} is gone")
            }
            (By::Kernel { name, .. }, _) => format!("the link of {name} went down"),
            _ => "its link went down: the other end is gone".to_owned(),
        })
    }

    /// Now.
    pub fn state(&self) -> State {
        match &self.by {
            By::Driver if self.port.link().up => State::Up,
            By::Driver => State::Down,
            By::Tap { name } if has_tap(name) => State::Up,
            By::Tap { .. } => State::Gone,
            By::Kernel { index, .. } => kernel(*index),
        }
    }
}

/// The interfaces of this thread's namespace: index, name, whether packets pass.
fn interfaces() -> impl Iterator<Item = (u32, String, bool)> {
    let running = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
    getifaddrs().into_iter().flatten().filter_map(move |entry| {
        let index = entry.address?.as_link_addr()?.ifindex();
        Some((u32::try_from(index).ok()?, entry.interface_name, entry.flags.contains(running)))
    })
}

fn interface_name(index: u32) -> Option<String> {
    interfaces().find(|(i, ..)| *i == index).map(|(_, name, _)| name)
}

fn kernel(index: u32) -> State {
    match interfaces().find(|(i, ..)| *i == index) {
        None => State::Gone,
        Some((.., true)) => State::Up,
        Some(_) => State::Down,
    }
}

/// Whether a descriptor of ours still has the tap called `name`, in whatever namespace it is: a deleted one has no
/// name any more.
fn has_tap(name: &str) -> bool {
    let Ok(descriptors) = fs::read_dir("/proc/self/fdinfo") else { return true };
    descriptors
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path()).ok())
        .any(|text| text.lines().any(|line| line.strip_prefix("iff:").is_some_and(|iff| iff.trim() == name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_interfaces_are_found_by_number() {
        let (index, ..) = interfaces().find(|(_, name, _)| name == "lo").expect("every machine has it");
        assert_eq!(interface_name(index).as_deref(), Some("lo"));
        assert_ne!(kernel(index), State::Gone);
        assert_eq!((kernel(u32::MAX), interface_name(0)), (State::Gone, None));
        assert!(!has_tap("no such tap"));
    }
}
