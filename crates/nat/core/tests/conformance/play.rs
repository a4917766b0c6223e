//! Plays a case: lines of text, of which each says what is sent or what must be seen.
//!
//! ```text
//!  config KEY=VALUE …                 before all else; the keys are those of `configure` below
//!  up TIME PACKET                     a packet from the inside, at so many seconds
//!  down TIME PACKET                   a packet from the outside
//!  => PACKET | drop REASON | held     what becomes of it
//!  at TIME                            time passes
//!  sent up|down PACKET                the NAT itself sends this next;  sent nothing
//!  repeat N up TIME PACKET => …       N times, with %i in the packet from 0 on; => any: it is forwarded
//!  check CONDITION                    see `check` below
//! ```
//! `$name` is an endpoint that is not known beforehand: where it first stands in an expected packet it becomes what is seen there. `$name@`
//! is its address alone, `$name+1` its address with the next port.

use super::packet::{Packet, text};
use nat_core::config::{
    Config, Exemption, Filtering, IpOptions, Mapping, PoolAddress, Prefix, Rule, SECOND, StaticForward,
};
use nat_core::{Realm, Side};
use std::collections::HashMap;
use std::net::Ipv4Addr;

type Vars = HashMap<String, String>;

/// A packet that comes out, from its IP header on.
pub struct Sent {
    pub to: Side,
    pub ip: Vec<u8>,
    pub realm: Realm,
}

/// What becomes of a packet that goes in.
pub enum PacketOutcome {
    Forwarded(Sent),
    Dropped(String),
    Held,
}

/// What carries a case's packets: the NAT's logic, or ports with a graph between them.
pub trait Carrier {
    /// Let so many nanoseconds of the case have passed.
    fn pass(&mut self, until: u64);
    /// A frame comes in.
    fn send(&mut self, side: Side, frame: Vec<u8>) -> PacketOutcome;
    /// What the NAT itself sends next.
    fn sent(&mut self) -> Option<Sent>;
    /// Whether a condition holds that packets do not show. `None`: there is no telling here.
    fn holds(&mut self, condition: &[&str]) -> Option<bool>;
}

fn prefix(text: &str) -> Prefix {
    let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
    Prefix::new(address.parse().unwrap(), bits.parse().unwrap())
}

pub fn endpoint(text: &str) -> (Ipv4Addr, u16) {
    let (address, port) = text.split_once(':').unwrap();
    (address.parse().unwrap(), port.parse().unwrap())
}

fn configure(config: &mut Config, key: &str, value: &str) {
    let number = || value.parse::<u32>().unwrap_or_else(|_| panic!("{key}={value}"));
    let filtering = || match value {
        "endpoint" => Filtering::EndpointIndependent,
        "address-and-port" => Filtering::AddressAndPortDependent,
        _ => panic!("{key}={value}"),
    };
    match key {
        "pool" => {
            config.pool = value.split(',').map(|a| PoolAddress::all_ports(a.parse().unwrap())).collect()
        }
        "ports" => {
            let (first, last) = value.split_once('-').unwrap();
            let ports = first.parse().unwrap()..=last.parse().unwrap();
            config.pool.iter_mut().for_each(|pool| pool.ports = ports.clone());
        }
        "block" => config.ports_per_block = number() as u16,
        "blocks" => config.blocks_per_subscriber = number() as u8,
        "sessions" => config.sessions = number() as usize,
        "per-subscriber" => config.sessions_per_subscriber = number(),
        "subscribers" => config.subscribers = number() as usize,
        "filtering.udp" => config.filtering.udp = filtering(),
        "filtering.tcp" => config.filtering.tcp = filtering(),
        "mapping.udp" => config.mapping.udp = Mapping::AddressAndPortDependent,
        "refresh-inbound" => config.refresh_inbound = value == "on",
        "parity" => config.port_parity = value == "on",
        "mss" => config.mss = Some(number() as u16),
        "mtu" => config.mtu.outside = number() as u16,
        "mtu.inside" => config.mtu.inside = number() as u16,
        "outside" => config.packet_filter.outside.push(prefix(value)),
        "inside" => config.inside = value.split(',').map(prefix).collect(),
        "non_host_addresses" => config.packet_filter.non_host_addresses.push(value.parse().unwrap()),
        "options" => {
            config.packet_filter.options = match value {
                "any" => IpOptions::Any,
                "none" => IpOptions::None,
                _ => IpOptions::NoSourceRoute,
            };
        }
        "deny" | "permit" => {
            let parts: Vec<&str> = value.split(',').collect();
            let from = match parts[0] {
                "up" => Some(Side::Inside),
                "down" => Some(Side::Outside),
                _ => None,
            };
            let protocol = parts[1].parse().ok();
            let (source, destination) = (prefix(parts[2]), prefix(parts[3]));
            let ports = parts.get(4).map(|port| port.parse().unwrap()..=port.parse().unwrap());
            let permit = key == "permit";
            config.packet_filter.rules.push(Rule { permit, from, protocol, source, destination, ports });
        }
        "exempt" => config.exempt.push(Exemption { destination: prefix(value), ports: None }),
        "deterministic" => config.deterministic = Some(prefix(value)),
        "held" => config.held_fragments = number() as usize,
        "errors" => config.icmp_errors_per_second = number(),
        "opening" => config.timeouts.tcp_opening = u64::from(number()) * SECOND,
        "silent" => config.addresses.outside = None,
        "log-sessions" => config.log_sessions = value == "on",
        "forward" => {
            let parts: Vec<&str> = value.split(',').collect();
            let protocol = if parts[0] == "tcp" { 6 } else { 17 };
            let (outside, inside) = (endpoint(parts[1]), endpoint(parts[2]));
            config.static_forwards.push(StaticForward { protocol, outside, inside, realm: 0 });
        }
        _ => panic!("no key: {key}"),
    }
}

/// The text with what is known put in.
fn filled(text: &str, vars: &Vars) -> String {
    let mut words = Vec::new();
    for word in text.split_whitespace() {
        let name = word.trim_end_matches("+1").trim_end_matches('@');
        words.push(match vars.get(name) {
            Some(value) if word.starts_with('$') => {
                let (address, port) = value.split_once(':').unwrap();
                match &word[name.len()..] {
                    "@" => address.to_owned(),
                    "+1" => format!("{address}:{}", port.parse::<u16>().unwrap() + 1),
                    _ => value.clone(),
                }
            }
            _ => word.to_owned(),
        });
    }
    words.join(" ")
}

/// Whether what is seen is what is expected; endpoints that are not known yet become known.
fn agrees(expected: &str, seen: &str, vars: &mut Vars) -> bool {
    let expected = filled(expected, vars);
    let (a, b): (Vec<&str>, Vec<&str>) =
        (expected.split_whitespace().collect(), seen.split_whitespace().collect());
    a.len() == b.len()
        && a.iter().zip(&b).all(|(a, b)| {
            let unknown = a.starts_with('$') && b.contains(':');
            if unknown {
                vars.insert((*a).to_owned(), (*b).to_owned());
            }
            unknown || a == b
        })
}

pub struct Player<C> {
    nat: C,
    vars: Vars,
    seen: Option<String>,
    /// Conditions that there was no telling of.
    untold: usize,
}

impl<C: Carrier> Player<C> {
    fn time(&mut self, text: &str) {
        let seconds: f64 = text.parse().unwrap_or_else(|_| panic!("no time: {text}"));
        self.nat.pass((seconds * 1e9) as u64);
    }

    fn send(&mut self, side: Side, what: &str) -> String {
        let packet =
            Packet::parse(&filled(what, &self.vars)).unwrap_or_else(|error| panic!("{what}: {error}"));
        match self.nat.send(side, packet.frame()) {
            PacketOutcome::Forwarded(sent) => {
                let to = if sent.to == side { "back " } else { "" };
                format!("{to}{}", text(&sent.ip, sent.realm))
            }
            PacketOutcome::Dropped(reason) => format!("drop {reason}"),
            PacketOutcome::Held => "held".into(),
        }
    }

    fn check(&mut self, condition: &str) {
        let filled = filled(condition, &self.vars);
        let words: Vec<&str> = filled.split_whitespace().collect();
        let port = |text: &str| text.rsplit(':').next().unwrap().parse::<u32>().unwrap();
        let address = |text: &str| text.split(':').next().unwrap().to_owned();
        let holds = match words[..] {
            [a, "!=", b] => a != b,
            [a, "==", b] => a == b,
            [a, "parity", b] => port(a) % 2 == port(b) % 2,
            [a, "address", b] => address(a) == address(b),
            [a, "other-address", b] => address(a) != address(b),
            [a, "port-within", first, last] => (port(first)..=port(last)).contains(&port(a)),
            _ => match self.nat.holds(&words) {
                Some(holds) => holds,
                None => {
                    self.untold += 1;
                    true
                }
            },
        };
        assert!(holds, "{condition}: {filled}");
    }

    fn line(&mut self, line: &str) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        let word = |text: &'_ str| -> (String, String) {
            let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
            (first.to_owned(), rest.trim().to_owned())
        };
        match verb {
            "up" | "down" => {
                assert!(self.seen.is_none(), "nothing says what becomes of the packet before");
                let (time, packet) = word(rest);
                self.time(&time);
                let side = if verb == "up" { Side::Inside } else { Side::Outside };
                self.seen = Some(self.send(side, &packet));
            }
            "=>" => {
                let seen = self.seen.take().expect("a packet before");
                assert!(agrees(rest, &seen, &mut self.vars), "seen:     {seen}\nexpected: {rest}");
            }
            "at" => self.time(rest),
            "sent" => {
                let seen = match self.nat.sent() {
                    None => "nothing".to_owned(),
                    Some(sent) => {
                        let way = if sent.to == Side::Outside { "up" } else { "down" };
                        format!("{way} {}", text(&sent.ip, sent.realm))
                    }
                };
                assert!(agrees(rest, &seen, &mut self.vars), "sent:     {seen}\nexpected: {rest}");
            }
            "repeat" => {
                let (count, rest) = word(rest);
                let (what, expected) = rest.split_once("=>").expect("=>");
                let (verb, what) = word(what);
                let (time, what) = word(&what);
                self.time(&time);
                let side = if verb == "up" { Side::Inside } else { Side::Outside };
                for i in 0..count.parse::<u32>().unwrap() {
                    let seen = self.send(side, &what.replace("%i", &i.to_string()));
                    let any = expected.trim() == "any" && !seen.starts_with("drop") && seen != "held";
                    assert!(
                        any || agrees(expected.trim(), &seen, &mut self.vars),
                        "the {i}th: {seen}\nexpected: {expected}"
                    );
                }
            }
            "check" => self.check(rest),
            _ => panic!("what is {verb}?"),
        }
    }
}

/// Play a case to its end. How many of its conditions there was no telling of.
pub fn play<C: Carrier>(case: &str, carrier: impl FnOnce(Config) -> C) -> usize {
    let mut config = Config {
        sessions: 4_096,
        subscribers: 256,
        pool: vec![PoolAddress::all_ports(Ipv4Addr::new(203, 0, 113, 1))],
        seed: [5; 32],
        ..Config::default()
    };
    config.addresses.inside = Some(Ipv4Addr::new(10, 0, 0, 1));
    config.addresses.outside = Some(Ipv4Addr::new(203, 0, 113, 254));
    let lines = || case.lines().map(|line| line.split('#').next().unwrap_or("").trim()).enumerate();
    for (_, line) in lines().filter(|(_, line)| line.starts_with("config")) {
        for setting in line.split_whitespace().skip(1) {
            let (key, value) = setting.split_once('=').unwrap_or((setting, "on"));
            configure(&mut config, key, value);
        }
    }
    let mut player = Player { nat: carrier(config), vars: Vars::new(), seen: None, untold: 0 };
    for (at, line) in lines().filter(|(_, line)| !line.is_empty() && !line.starts_with("config")) {
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| player.line(line)));
        if played.is_err() {
            panic!("line {}: {line}", at + 1);
        }
    }
    assert!(player.seen.is_none(), "nothing says what becomes of the last packet");
    player.untold
}
