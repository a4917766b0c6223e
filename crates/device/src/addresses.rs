//! Which of a target's addresses a worker's devices use, and what became of each.

use crate::conn_error::ConnError;
use protocol::meter::Failure;
use protocol::time::Time;
use run::AddressTally;
use run::addresses::{Addresses, address_text};
use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

/// How long datagrams are kept that nothing has answered: an error about them comes within a round trip.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Most bytes of datagrams kept for one device.
const KEPT_MAX: usize = 64 << 10;
/// Most devices for which they are kept.
const KEPT_DEVICES: usize = 1024;

/// The target of one group, as one worker knows it.
pub(super) struct Reach {
    /// Where the next connection is tried first: where the last one came up.
    preferred: usize,
    each: Vec<AddressReach>,
    /// Datagrams sent to an address that has not answered yet, by device: they are sent again to the next.
    unanswered: HashMap<u32, Vec<(usize, Vec<u8>)>>,
    /// When the first of these was sent.
    since: Time,
    /// Whether these are servers that take over from one another; then when each failed a device, [`Time::ZERO`]: never.
    fails_over: bool,
    failures: HashMap<u32, Box<[Time]>>,
}

#[derive(Default, Clone)]
struct AddressReach {
    /// Whether a connection to it ever came up, or a datagram came from it.
    works: bool,
    opened: u64,
    failed: u64,
    delivered: u64,
    cause: Option<String>,
}

impl Reach {
    pub fn new(addresses: &Addresses) -> Self {
        let each = vec![AddressReach::default(); addresses.count()];
        Self {
            preferred: 0,
            each,
            unanswered: HashMap::new(),
            since: Time::NEVER,
            fails_over: addresses.fail_over(),
            failures: HashMap::new(),
        }
    }

    /// Where device number `device` begins.
    pub fn start(&self, addresses: &Addresses, device: u32, now: Time) -> usize {
        if self.fails_over {
            let failed = self.failures.get(&device).map_or(&[][..], |failed| failed);
            return addresses.server(device, now, failed, 0);
        }
        addresses.own(device).unwrap_or(self.preferred)
    }

    /// Where it goes on when address `n` has failed it. `tried`: a bit for each that it has tried.
    pub fn next(&mut self, addresses: &Addresses, device: u32, n: usize, tried: u64, now: Time) -> usize {
        if !self.fails_over {
            return (n + 1) % addresses.count();
        }
        let never = || vec![Time::ZERO; addresses.count()].into();
        let failed = self.failures.entry(device).or_insert_with(never);
        failed[n] = now;
        addresses.server(device, now, failed, tried)
    }

    /// Whether devices go on with another server where one fails them.
    pub fn fails_over(&self) -> bool {
        self.fails_over
    }

    /// Address `n` confirmed messages of a device.
    pub fn delivered(&mut self, n: usize, device: u32, messages: u64) {
        self.each[n].delivered += messages;
        if !self.failures.is_empty()
            && let Some(failed) = self.failures.get_mut(&device)
        {
            failed[n] = Time::ZERO;
            if failed.iter().all(|at| *at == Time::ZERO) {
                self.failures.remove(&device);
            }
        }
    }

    /// A connection to address `n` came up, or a socket was opened that sends datagrams to it.
    pub fn opened(&mut self, n: usize) {
        self.each[n].opened += 1;
    }

    /// Address `n` answers: the next device goes there.
    pub fn prefer(&mut self, n: usize) {
        self.each[n].works = true;
        self.preferred = n;
        if !self.unanswered.is_empty() {
            self.unanswered = HashMap::new();
        }
    }

    /// Address `n` could not be reached.
    pub fn failed(&mut self, n: usize, why: &ConnError) {
        let one = &mut self.each[n];
        one.failed += 1;
        one.cause = Some(why.description());
        self.since = Time::NEVER;
        if self.preferred == n && !one.works {
            self.preferred = (n + 1) % self.each.len();
        }
    }

    /// Whether another address may do better than number `n`, which failed with `why`: what is wrong with this host, as ports
    /// that have run out, is not, unless no connection to it ever came up.
    pub fn is_of_the_address(&self, n: usize, why: &ConnError) -> bool {
        match why.why {
            Failure::Refused | Failure::Unreachable | Failure::Timeout => true,
            Failure::Local => !self.each[n].works,
            Failure::Unanswered | Failure::Rejected | Failure::Reset | Failure::Closed => self.fails_over,
            _ => false,
        }
    }

    /// Whether anything has come from address `n`.
    pub fn is_answered(&self, n: usize) -> bool {
        self.each[n].works
    }

    /// Keep datagrams that are about to be sent to address `n`.
    pub fn keep(&mut self, device: u32, n: usize, segment: usize, bytes: &[u8], now: Time) {
        if self.each.len() == 1 || self.each[n].works || self.fails_over {
            return;
        }
        self.since = self.since.min(now);
        if now.since(self.since) > KEPT_FOR.as_nanos() as u64 {
            self.unanswered = HashMap::new();
            return;
        }
        if self.unanswered.len() >= KEPT_DEVICES && !self.unanswered.contains_key(&device) {
            return;
        }
        let kept = self.unanswered.entry(device).or_default();
        if kept.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() + bytes.len() <= KEPT_MAX {
            kept.push((segment, bytes.to_vec()));
        }
    }

    /// The datagrams that were kept for a device.
    pub fn take_kept(&mut self, device: u32) -> Vec<(usize, Vec<u8>)> {
        self.unanswered.remove(&device).unwrap_or_default()
    }

    /// Why none of the addresses could be reached.
    pub fn causes(&self, host: &str, addresses: &Addresses) -> String {
        let mut text = format!("no address of {host} could be reached");
        for (n, (address, one)) in addresses.iter().zip(&self.each).enumerate() {
            let cause = one.cause.as_deref().unwrap_or("not tried");
            let _infallible =
                write!(text, "{} {} {cause}", if n == 0 { ":" } else { ";" }, address_text(address));
        }
        text
    }

    /// What became of the addresses since the last call.
    pub fn take(&mut self, group: usize, into: &mut Vec<AddressTally>) {
        for (address, one) in self.each.iter_mut().enumerate() {
            if one.opened == 0 && one.failed == 0 && one.delivered == 0 {
                continue;
            }
            let [opened, failed, delivered] =
                [&mut one.opened, &mut one.failed, &mut one.delivered].map(std::mem::take);
            into.push(AddressTally { group, address, opened, failed, delivered, cause: one.cause.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::Resolve;

    fn refused() -> ConnError {
        ConnError::new(Failure::Refused, "refused")
    }

    #[test]
    fn the_address_that_works_is_tried_first_from_then_on() {
        let addresses = Addresses::of("127.0.0.1", 80, Resolve::First, None).expect("an address");
        let mut reach = Reach { each: vec![AddressReach::default(); 3], ..Reach::new(&addresses) };
        reach.failed(0, &refused());
        assert_eq!(reach.start(&addresses, 7, Time::ZERO), 1, "nothing ever came from the first");
        reach.prefer(2);
        assert_eq!(reach.start(&addresses, 7, Time::ZERO), 2);
        // it is gone for a while: who finds another that works moves there, and the rest with it
        reach.failed(2, &refused());
        assert_eq!(reach.start(&addresses, 7, Time::ZERO), 2);
        let mut told = Vec::new();
        reach.take(4, &mut told);
        assert_eq!(
            told.iter().map(|one| (one.group, one.address, one.failed)).collect::<Vec<_>>(),
            [(4, 0, 1), (4, 2, 1)]
        );
        told.clear();
        reach.take(4, &mut told);
        assert!(told.is_empty(), "each is told once");
    }

    #[test]
    fn what_is_wrong_with_this_host_leads_to_no_other_address() {
        let addresses = Addresses::of("127.0.0.1", 80, Resolve::First, None).expect("an address");
        let mut reach = Reach::new(&addresses);
        let of = |why| ConnError::new(why, "");
        let next = |reach: &Reach, why| reach.is_of_the_address(0, &of(why));
        for why in [Failure::Refused, Failure::Unreachable, Failure::Timeout, Failure::Local] {
            assert!(next(&reach, why), "{why:?}");
        }
        for why in [Failure::Tls, Failure::Reset, Failure::Closed, Failure::Protocol] {
            assert!(!next(&reach, why), "{why:?}");
        }
        reach.prefer(0);
        assert!(!next(&reach, Failure::Local), "out of ports, as it worked before");
    }

    #[test]
    fn datagrams_are_kept_until_something_answers_or_time_is_up() {
        let addresses = Addresses::of("127.0.0.1", 80, Resolve::First, None).expect("an address");
        let two = || Reach { each: vec![AddressReach::default(); 2], ..Reach::new(&addresses) };
        let ms = |ms: u64| Time(ms * 1_000_000);
        let mut reach = two();
        reach.keep(5, 0, 3, b"abcabc", ms(0));
        reach.keep(5, 0, 0, b"x", ms(900));
        assert_eq!(reach.take_kept(5), [(3, b"abcabc".to_vec()), (0, b"x".to_vec())]);
        reach.keep(5, 0, 0, b"late", ms(1001));
        assert!(reach.take_kept(5).is_empty());
        reach.failed(0, &refused());
        reach.keep(5, 1, 0, b"to the next", ms(1002));
        reach.prefer(1);
        assert!(reach.take_kept(5).is_empty(), "it answered");
        let mut one = Reach::new(&addresses);
        one.keep(5, 0, 0, b"nowhere else to go", ms(0));
        assert!(one.take_kept(5).is_empty());
    }

    #[test]
    fn each_device_learns_for_itself_which_server_failed() {
        let text = r#"{"servers": [{"address": "127.0.0.1:1", "priority": 1}, {"address": "127.0.0.1:2", "priority": 2}]}"#;
        let addresses = Addresses::servers(&serde_json::from_str(text).expect("servers")).expect("addresses");
        let mut reach = Reach::new(&addresses);
        let now = Time(1_000_000_000);
        assert_eq!(reach.start(&addresses, 3, now), 0);
        assert_eq!(reach.next(&addresses, 3, 0, 0b01, now), 1);
        assert_eq!((reach.start(&addresses, 3, now), reach.start(&addresses, 4, now)), (1, 0));
        assert_eq!(
            reach.next(&addresses, 3, 1, 0b10, now + Duration::from_secs(1)),
            0,
            "both failed: the first again"
        );
        reach.delivered(0, 3, 2);
        assert_eq!(reach.start(&addresses, 3, now + Duration::from_secs(1)), 0);
        let mut told = Vec::new();
        reach.take(0, &mut told);
        assert_eq!(told.iter().map(|one| (one.address, one.delivered)).collect::<Vec<_>>(), [(0, 2)]);
    }
}
