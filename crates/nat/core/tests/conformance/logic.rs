//! The NAT's logic carries a case.

use super::play::{Carrier, PacketOutcome, Sent, endpoint};
use nat_core::config::{Config, SECOND};
use nat_core::{Endpoint, EventKind, Frame, Nat, Side, Verdict};
use std::collections::HashMap;

const BEGIN: u64 = 1_000 * SECOND;

pub struct Logic {
    nat: Nat,
    now: u64,
    logged: HashMap<String, usize>,
}

impl Logic {
    pub fn new(config: Config) -> Self {
        let nat = Nat::new(config).unwrap_or_else(|error| panic!("{error}"));
        Self { nat, now: BEGIN, logged: HashMap::new() }
    }

    fn log(&mut self) {
        while let Some(event) = self.nat.pop_event() {
            let kind = match event.what {
                EventKind::SessionCreated(_) => "session+",
                EventKind::SessionEnded(..) => "session-",
                EventKind::SessionInterim(..) => "interim",
                EventKind::BlockAllocated(_) => "block+",
                EventKind::BlockReleased(_) => "block-",
                EventKind::MappingCreated(_) => "mapping+",
                EventKind::MappingDeleted(_) => "mapping-",
                EventKind::Refused(_, of, _) => {
                    *self.logged.entry(format!("refused-of-{of}")).or_default() += 1;
                    "refused"
                }
            };
            *self.logged.entry(kind.to_owned()).or_default() += 1;
        }
    }
}

impl Carrier for Logic {
    fn pass(&mut self, until: u64) {
        let until = until + BEGIN;
        assert!(until >= self.now, "time goes forward");
        // Time passes in steps, as it does where somebody calls often.
        while self.now < until {
            self.now = until.min(self.now + SECOND);
            while self.nat.advance(self.now, 1_000) {}
        }
    }

    fn send(&mut self, side: Side, mut frame: Vec<u8>) -> PacketOutcome {
        let verdict = {
            let mut frames = [Frame::new(&mut frame)];
            self.nat.process(side, &mut frames, self.now);
            frames[0].verdict
        };
        match verdict {
            Verdict::Forward(forward) => {
                let is_ip = |three: &[u8]| three[..2] == [8, 0] && three[2] >> 4 == 4;
                let l3 = frame.windows(3).position(is_ip).unwrap() + 2;
                PacketOutcome::Forwarded(Sent {
                    to: forward.to,
                    ip: frame[l3..].to_vec(),
                    realm: forward.realm,
                })
            }
            Verdict::Drop(reason) => PacketOutcome::Dropped(reason.name().into()),
            // In pieces, of which the first is told here.
            Verdict::Held => self.sent().map_or(PacketOutcome::Held, PacketOutcome::Forwarded),
            Verdict::Pending => panic!("undecided"),
        }
    }

    fn sent(&mut self) -> Option<Sent> {
        let (forward, ip) = self.nat.pop_output()?;
        Some(Sent { to: forward.to, ip: ip.to_vec(), realm: forward.realm })
    }

    fn holds(&mut self, condition: &[&str]) -> Option<bool> {
        self.log();
        let number = |count: &str| count.parse::<u64>().unwrap();
        Some(match *condition {
            ["sessions", count] => self.nat.session_count() as u64 == number(count),
            ["subscribers", count] => self.nat.subscribers().count() as u64 == number(count),
            ["logged", kind, count] => self.logged.get(kind).copied().unwrap_or(0) as u64 == number(count),
            ["dropped", reason, count] => {
                let mut drops = self.nat.drops().iter();
                drops.find(|(this, _)| this.name() == reason).map_or(0, |(_, n)| n) == number(count)
            }
            ["packets", up, down] => {
                let volumes = self.nat.sessions().map(|(_, session)| session.volume());
                let sum = volumes.fold((0, 0), |(up, down), of| (up + of.packets_up, down + of.packets_down));
                sum == (number(up), number(down))
            }
            ["forwarded", up, down] => {
                let forwarded = self.nat.forwarded();
                (forwarded.up, forwarded.down) == (number(up), number(down))
            }
            ["deterministic", outside, inside] => {
                let (address, port) = endpoint(outside);
                let found = self.nat.deterministic_subscriber(Endpoint::new(address.to_bits(), port));
                found == Some(inside.parse().unwrap())
            }
            _ => panic!("what is {condition:?}?"),
        })
    }
}
