//! Packets to subscribers whose next hop is asked for. Of each the latest packet waits (RFC 1122 section 2.3.2.2, RFC 1812 section 3.3.2);
//! the others are dropped.

use nat_core::config::SECOND;
use nat_core::neighbours::Host;
use std::collections::HashMap;

/// Subscribers that are waited for at a time.
const MOST: usize = 128;
/// Longest wait for an answer, ns: the requests of ARP take less.
const PATIENCE: u64 = 5 * SECOND;
/// For so long who is nowhere is not asked for again, ns.
const NOWHERE: u64 = SECOND;

#[derive(Debug)]
struct Line<P> {
    until: u64,
    asked: bool,
    /// The packet; none: it is nowhere.
    held: Option<P>,
}

/// The packets of a worker that wait.
#[derive(Debug)]
pub struct PendingPackets<P>(HashMap<Host, Line<P>>);

impl<P> PendingPackets<P> {
    /// None.
    pub fn new() -> Self {
        Self(HashMap::with_capacity(MOST))
    }

    /// Let a packet wait. It is given back if its host is nowhere, or there is no room; else the one that waited before it is. Who is
    /// nowhere makes room for others.
    pub fn hold(&mut self, host: Host, packet: P, now: u64) -> Result<Option<P>, P> {
        let is_full = self.0.len() >= MOST;
        match self.0.get_mut(&host) {
            Some(Line { held: Some(held), .. }) => Ok(Some(std::mem::replace(held, packet))),
            Some(Line { held: None, .. }) => Err(packet),
            None => {
                if is_full {
                    let nowhere = self.0.iter().find(|(_, line)| line.held.is_none()).map(|(host, _)| *host);
                    let Some(nowhere) = nowhere else { return Err(packet) };
                    self.0.remove(&nowhere);
                }
                self.0.insert(host, Line { until: now + PATIENCE, asked: false, held: Some(packet) });
                Ok(None)
            }
        }
    }

    /// Ask for the hosts that were not asked for, as long as `ask` takes them.
    pub fn ask(&mut self, mut ask: impl FnMut(Host) -> bool) {
        for (host, line) in &mut self.0 {
            if !line.asked {
                line.asked = ask(*host);
            }
        }
    }

    /// A host is there, or nowhere: the packet that waited for that.
    pub fn answer(&mut self, host: Host, there: bool, now: u64) -> Option<P> {
        if there {
            return self.0.remove(&host)?.held;
        }
        let line = self.0.get_mut(&host)?;
        line.until = now + NOWHERE;
        line.held.take()
    }

    /// Let go of what has waited for too long: how many packets.
    pub fn expire(&mut self, now: u64) -> u64 {
        let mut count = 0;
        self.0.retain(|_, line| {
            let stays = now < line.until;
            count += u64::from(!stays && line.held.is_some());
            stays
        });
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Host = (1, 0);

    fn asked(awaiting: &mut PendingPackets<u8>, takes: bool) -> Vec<Host> {
        let mut hosts = Vec::new();
        awaiting.ask(|host| {
            hosts.push(host);
            takes
        });
        hosts
    }

    #[test]
    fn the_latest_packet_waits_until_its_host_is_there() {
        let mut awaiting = PendingPackets::new();
        assert_eq!((awaiting.hold(HOST, 1, 0), awaiting.hold(HOST, 2, 0)), (Ok(None), Ok(Some(1))));
        assert_eq!((asked(&mut awaiting, false), asked(&mut awaiting, true)), (vec![HOST], vec![HOST]));
        assert_eq!(asked(&mut awaiting, true), []);
        assert_eq!((awaiting.answer(HOST, true, 0), awaiting.answer(HOST, true, 0)), (Some(2), None));
        // Nobody answers at all.
        assert_eq!(awaiting.hold(HOST, 3, 0), Ok(None));
        assert_eq!((awaiting.expire(PATIENCE - 1), awaiting.expire(PATIENCE)), (0, 1));
        assert!(awaiting.0.is_empty());
    }

    #[test]
    fn nothing_waits_for_who_is_nowhere_nor_without_room() {
        let mut awaiting = PendingPackets::new();
        assert_eq!(awaiting.hold(HOST, 1, 0), Ok(None));
        assert_eq!(awaiting.answer(HOST, false, 10), Some(1));
        assert_eq!((awaiting.hold(HOST, 2, 11), asked(&mut awaiting, true)), (Err(2), vec![HOST]));
        assert_eq!(awaiting.expire(10 + NOWHERE), 0);
        assert_eq!(awaiting.hold(HOST, 3, 0), Ok(None), "it is asked for again");
        for number in 2..=MOST as u32 {
            assert_eq!(awaiting.hold((number, 0), 4, 0), Ok(None));
        }
        assert_eq!(awaiting.hold((0, 0), 5, 0), Err(5));
        // Who is nowhere makes room.
        assert_eq!(awaiting.answer(HOST, false, 0), Some(3));
        assert_eq!((awaiting.hold((0, 0), 5, 0), awaiting.hold(HOST, 6, 0)), (Ok(None), Err(6)));
        assert_eq!(awaiting.0.len(), MOST);
    }
}
