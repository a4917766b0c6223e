//! Many clients, one server, and a network that loses messages.

use super::*;
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;

fn mac(number: u16) -> Mac {
    let [high, low] = number.to_be_bytes();
    [2, 0, 0, 1, high, low]
}

/// A server with an address for each, which loses some of what it gets and says; a rogue one gives all the same.
struct Server {
    random: SmallRng,
    loses: f64,
    rogue: bool,
    leases: HashMap<Mac, Ipv4Addr>,
}

impl Server {
    fn new(seed: u64, loses: f64, rogue: bool) -> Self {
        Self { random: SmallRng::seed_from_u64(seed), loses, rogue, leases: HashMap::new() }
    }

    fn lost(&mut self) -> bool {
        self.random.random_bool(self.loses)
    }

    fn answer(&mut self, sent: &Sent) -> Option<Says> {
        if self.lost() {
            return None;
        }
        let next = if self.rogue { 5 } else { self.leases.len() as u32 + 256 };
        let address = *self.leases.entry(sent.mac()).or_insert(Ipv4Addr::from(0xc612_0000 + next));
        let kind = match sent.kind() {
            MessageType::Discover => MessageType::Offer,
            MessageType::Request => {
                let asked = sent.wanted().unwrap_or(sent.message.ciaddr());
                if asked == address { MessageType::Ack } else { MessageType::Nak }
            }
            _ => return None,
        };
        let says = Says { address, more: vec![], ..Says::to(sent, kind) };
        (!self.lost()).then_some(says)
    }
}

/// What clients have by what they told.
#[derive(Default)]
struct Leases(HashMap<Mac, Ipv4Addr>);

impl Leases {
    fn drain(&mut self, clients: &mut Clients) {
        while let Some(event) = clients.event() {
            match event {
                Event::Acquired { mac, lease } => {
                    assert!(
                        !self.0.values().any(|address| *address == lease.address),
                        "two with one address"
                    );
                    assert_eq!(self.0.insert(mac, lease.address), None);
                }
                Event::Renewed { mac, lease } => assert_eq!(self.0.get(&mac), Some(&lease.address)),
                Event::Lost { mac, address, .. } => assert_eq!(self.0.remove(&mac), Some(address)),
                Event::Refused { mac, .. } | Event::Unfit { mac, .. } => assert!(!self.0.contains_key(&mac)),
            }
        }
    }

    fn check(&self, clients: &Clients) {
        for (mac, address) in &self.0 {
            assert_eq!(clients.lease(*mac).map(|lease| lease.address), Some(*address));
            assert_eq!(clients.holder(*address), Some(*mac));
        }
    }
}

/// Do all that is due until `until`.
fn play(clients: &mut Clients, server: &mut Server, told: &mut Leases, until: u64) {
    loop {
        while let Some(frame) = clients.transmit() {
            if let Some(says) = server.answer(&Sent::read(&frame)) {
                clients
                    .receive(&says.frame(), clients.next_due().unwrap_or(until).min(until).saturating_sub(1));
            }
        }
        told.drain(clients);
        match clients.next_due().filter(|due| *due <= until) {
            Some(due) => clients.advance(due),
            None => return,
        }
    }
}

#[test]
fn thousands_get_their_addresses_and_keep_them() {
    const COUNT: u16 = 2000;
    let mut clients = Clients::new(Config { most: usize::from(COUNT), ..Config::default() }, 1);
    let (mut server, mut told) = (Server::new(2, 0.1, false), Leases::default());
    (0..COUNT).for_each(|number| clients.add(mac(number), 0).unwrap());
    play(&mut clients, &mut server, &mut Leases::default(), SECOND - 1);
    assert_eq!(clients.lease(mac(0)), None, "they wait for a second at least");
    play(&mut clients, &mut server, &mut told, 600 * SECOND);
    assert_eq!(told.0.len(), usize::from(COUNT));
    told.check(&clients);
    let before = told.0.clone();
    play(&mut clients, &mut server, &mut told, 20_000 * SECOND);
    assert_eq!(told.0, before, "renewed five times and more");

    // All start again, and have the same addresses.
    let known: Vec<KnownAddress> = clients.known_addresses().copied().collect();
    let mut clients = Clients::new(Config { most: usize::from(COUNT), ..Config::default() }, 3);
    clients.remember(known);
    (0..COUNT).for_each(|number| clients.add(mac(number), 0).unwrap());
    let mut told = Leases::default();
    play(&mut clients, &mut server, &mut told, 600 * SECOND);
    assert_eq!(told.0, before);
}

#[test]
fn a_server_that_gives_all_the_same_address_gives_it_to_one() {
    let mut clients = Clients::new(Config::default(), 1);
    let (mut server, mut told) = (Server::new(2, 0.0, true), Leases::default());
    (0..50).for_each(|number| clients.add(mac(number), 0).unwrap());
    play(&mut clients, &mut server, &mut told, 100 * SECOND);
    assert_eq!(told.0.len(), 1);
    told.check(&clients);
    assert!(clients.ignored().any(|(reason, count)| reason == "taken" && count > 0));
}

#[test]
fn who_is_given_an_address_that_another_got_meanwhile_declines_it() {
    let mut clients = Clients::new(config(), 1);
    clients.add(mac(1), 0).unwrap();
    clients.add(mac(2), 0).unwrap();
    clients.advance(0);
    let sent: Vec<Sent> = std::iter::from_fn(|| clients.transmit()).map(|frame| Sent::read(&frame)).collect();
    sent.iter().for_each(|sent| {
        clients.receive(&Says::to(sent, MessageType::Offer).frame(), 0);
    });
    let sent: Vec<Sent> = std::iter::from_fn(|| clients.transmit()).map(|frame| Sent::read(&frame)).collect();
    assert_eq!(sent.len(), 2);
    sent.iter().for_each(|sent| {
        clients.receive(&Says::to(sent, MessageType::Ack).frame(), 0);
    });
    let decline = one(&mut clients);
    assert_eq!((decline.kind(), decline.mac()), (MessageType::Decline, sent[1].mac()));
    assert_eq!(clients.holder(ADDRESS), Some(sent[0].mac()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is done, and whatever is lost: what is told adds up to what is had, and no two have one address.
    #[test]
    fn histories(
        seed in any::<u64>(),
        loses in 0.0..0.9,
        rogue in any::<bool>(),
        steps in prop::collection::vec((0..4_u8, 0..6_u16, 0..3000_u64), 0..40),
    ) {
        let mut clients = Clients::new(Config { most: 4, ..Config::default() }, seed);
        let (mut server, mut told, mut now) = (Server::new(seed, loses, rogue), Leases::default(), 0);
        for (what, who, wait) in steps {
            now += wait * SECOND;
            play(&mut clients, &mut server, &mut told, now);
            match what {
                0 | 1 => drop(clients.add(mac(who), now)),
                2 => drop(clients.release(mac(who), now)),
                _ => drop(clients.conflict(mac(who), now)),
            }
            play(&mut clients, &mut server, &mut told, now);
            told.check(&clients);
            prop_assert!(clients.known_addresses().count() <= 4);
            prop_assert_eq!(clients.len() >= told.0.len(), true);
        }
    }
}
