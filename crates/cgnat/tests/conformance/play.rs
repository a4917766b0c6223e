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

use crate::packet::{Packet, text};
use cgnat::config::{Config, Exemption, Filtering, Mapping, PoolAddress, Prefix, SECOND, StaticForward};
use cgnat::{Frame, Nat, Side, Verdict, What};
use std::collections::HashMap;
use std::net::Ipv4Addr;

type Vars = HashMap<String, String>;

fn prefix(text: &str) -> Prefix {
    let (address, bits) = text.split_once('/').unwrap_or((text, "32"));
    Prefix::new(address.parse().unwrap(), bits.parse().unwrap())
}

fn endpoint(text: &str) -> (Ipv4Addr, u16) {
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
        "pool" => config.pool = value.split(',').map(|a| PoolAddress::whole(a.parse().unwrap())).collect(),
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

pub struct Player {
    nat: Nat,
    vars: Vars,
    now: u64,
    seen: Option<String>,
    logged: HashMap<&'static str, usize>,
}

impl Player {
    fn time(&mut self, text: &str) {
        let seconds: f64 = text.parse().unwrap_or_else(|_| panic!("no time: {text}"));
        let until = (seconds * 1e9) as u64 + 1_000 * SECOND;
        assert!(until >= self.now, "time goes forward: {text}");
        // Time passes in steps, as it does where somebody calls often.
        while self.now < until {
            self.now = until.min(self.now + SECOND);
            while self.nat.advance(self.now, 1_000) {}
        }
    }

    fn send(&mut self, side: Side, what: &str) -> String {
        let packet =
            Packet::parse(&filled(what, &self.vars)).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut bytes = packet.frame();
        let verdict = {
            let mut frames = [Frame::new(&mut bytes)];
            self.nat.process(side, &mut frames, self.now);
            frames[0].verdict
        };
        match verdict {
            Verdict::Forward(forward) => {
                let l3 = bytes.windows(3).position(|three| three == [8, 0, 0x45]).unwrap() + 2;
                let to = if forward.to == side { "back " } else { "" };
                format!("{to}{}", text(&bytes[l3..], forward.realm))
            }
            Verdict::Drop(reason) => format!("drop {}", reason.name()),
            Verdict::Held => "held".into(),
            Verdict::Pending => "undecided".into(),
        }
    }

    fn log(&mut self) {
        while let Some(event) = self.nat.pop_event() {
            let kind = match event.what {
                What::SessionCreated(_) => "session+",
                What::SessionEnded(..) => "session-",
                What::SessionInterim(..) => "interim",
                What::BlockAllocated(_) => "block+",
                What::BlockReleased(_) => "block-",
                What::Refused(..) => "refused",
            };
            *self.logged.entry(kind).or_default() += 1;
        }
    }

    fn check(&mut self, condition: &str) {
        let filled = filled(condition, &self.vars);
        let words: Vec<&str> = filled.split_whitespace().collect();
        let port = |text: &str| text.rsplit(':').next().unwrap().parse::<u32>().unwrap();
        let address = |text: &str| text.split(':').next().unwrap().to_owned();
        self.log();
        let holds = match words[..] {
            [a, "!=", b] => a != b,
            [a, "==", b] => a == b,
            [a, "parity", b] => port(a) % 2 == port(b) % 2,
            [a, "address", b] => address(a) == address(b),
            [a, "other-address", b] => address(a) != address(b),
            [a, "port-within", first, last] => (port(first)..=port(last)).contains(&port(a)),
            ["sessions", count] => self.nat.session_count() == count.parse::<usize>().unwrap(),
            ["subscribers", count] => self.nat.subscribers().count() == count.parse::<usize>().unwrap(),
            ["logged", kind, count] => {
                self.logged.get(kind).copied().unwrap_or(0) == count.parse::<usize>().unwrap()
            }
            ["dropped", reason, count] => {
                let counted =
                    self.nat.drops().iter().find(|(this, _)| this.name() == reason).map_or(0, |(_, n)| n);
                counted == count.parse::<u64>().unwrap()
            }
            ["deterministic", outside, inside] => {
                let (address, port) = endpoint(outside);
                let found = self.nat.deterministic_subscriber(cgnat::Endpoint::new(address.to_bits(), port));
                found == Some(inside.parse().unwrap())
            }
            _ => panic!("what is {condition}?"),
        };
        assert!(holds, "{condition}: {filled} (logged {:?}, dropped {:?})", self.logged, self.nat.drops());
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
                let seen = match self.nat.pop_output() {
                    None => "nothing".to_owned(),
                    Some((forward, ip)) => {
                        let way = if forward.to == Side::Outside { "up" } else { "down" };
                        format!("{way} {}", text(ip, forward.realm))
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

/// Play a case to its end.
pub fn play(case: &str) {
    let mut config = Config {
        sessions: 4_096,
        subscribers: 256,
        pool: vec![PoolAddress::whole(Ipv4Addr::new(203, 0, 113, 1))],
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
    let nat = Nat::new(config).unwrap_or_else(|error| panic!("{error}"));
    let mut player =
        Player { nat, vars: Vars::new(), now: 1_000 * SECOND, seen: None, logged: HashMap::new() };
    for (at, line) in lines().filter(|(_, line)| !line.is_empty() && !line.starts_with("config")) {
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| player.line(line)));
        if played.is_err() {
            panic!("line {}: {line}", at + 1);
        }
    }
    assert!(player.seen.is_none(), "nothing says what becomes of the last packet");
}
