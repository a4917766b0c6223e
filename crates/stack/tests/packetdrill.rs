//! Scripts of packetdrill, in simulated time: those of `packetdrill/`, taken from the TCP test suite for FreeBSD.
//!
//! Window sizes, values of options and their order, and the PSH flag are each stack's own affair and not compared; flags, sequence
//! numbers, acknowledgments, lengths, SACK blocks, which options there are, times and results of calls are.

use crate::wire::{Frames, MS, config, ip, mac, segment};
use packet::Layers;
use packet::tcp::{Header, Options, flag};
use stack::{CloseReason, Handle, Received, Stack, State, TcpConfig};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::Path;

const SERVER: u16 = 8080;
const PEER: u16 = 50_000;
/// How far a window reaches that is not scaled.
const WINDOW: u32 = 65_535;

/// Why a script does not end as it is written.
type Fault = String;

/// A connection as a script's process has it.
struct Descriptor {
    handle: Option<Handle>,
    /// What was peeked at and not read.
    peeked: usize,
    ended: bool,
}

struct Player {
    stack: Stack,
    v6: bool,
    now: u64,
    begun: u64,
    tolerance: u64,
    iss: Option<u32>,
    /// Our port, and the peer's.
    ports: (u16, u16),
    out: VecDeque<(u64, Header, usize)>,
    all: BTreeMap<u32, Descriptor>,
    /// Connections whose descriptors were closed.
    closed: Vec<Handle>,
    /// How far the script's window reaches, which is what it says of the receive buffer.
    buffer: u32,
}

/// The number behind `key`, up to the next that is no digit.
fn number(text: &str, key: &str) -> Option<u64> {
    let rest = text[text.find(key)? + key.len()..].trim_start();
    rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
}

/// What a segment of a script says.
struct Said {
    flags: u8,
    sequence: u32,
    len: usize,
    ack: Option<u32>,
    window: u16,
    options: Options,
}

impl Said {
    fn parse(text: &str) -> Result<Self, Fault> {
        let what = || format!("{text} is not understood");
        let mut words = text.split_whitespace();
        let letters = words.next().ok_or_else(what)?;
        let bit = |letter| match letter {
            'S' => Ok(flag::SYN),
            'F' => Ok(flag::FIN),
            'R' => Ok(flag::RST),
            'P' => Ok(flag::PSH),
            '.' => Ok(flag::ACK),
            _ => Err(what()),
        };
        let flags = letters.chars().try_fold(0, |all, letter| Ok::<_, Fault>(all | bit(letter)?))?;
        let range = words.next().ok_or_else(what)?;
        let (from, rest) = range.split_once(':').ok_or_else(what)?;
        let (_, len) = rest.split_once('(').ok_or_else(what)?;
        let mut options = Options::default();
        if let Some((_, list)) = text.split_once('<') {
            for one in list.trim_end_matches(['>', ' ']).split(',').map(str::trim) {
                let mut words = one.split_whitespace();
                let mut value = || words.next().and_then(|word| word.parse::<u32>().ok());
                match one.split_whitespace().next().unwrap_or_default() {
                    "nop" | "eol" => {}
                    "sackOK" => options.sack_permitted = true,
                    "mss" => (_, options.mss) = (value(), value().map(|mss| mss as u16)),
                    "wscale" => (_, options.window_scale) = (value(), value().map(|shift| shift as u8)),
                    "TS" => {
                        let (value, echo) = (number(one, "val"), number(one, "ecr"));
                        options.timestamps = value.zip(echo).map(|(a, b)| (a as u32, b as u32));
                    }
                    "sack" => {
                        for pair in one.split_whitespace().skip(1) {
                            let (left, right) = pair.split_once(':').ok_or_else(what)?;
                            let block = (left.parse().ok().zip(right.parse().ok())).ok_or_else(what)?;
                            *options.sack.get_mut(usize::from(options.sacks)).ok_or_else(what)? = block;
                            options.sacks += 1;
                        }
                    }
                    _ => return Err(what()),
                }
            }
        }
        Ok(Self {
            flags,
            sequence: from.parse().map_err(|_| what())?,
            len: len.trim_end_matches(')').parse().map_err(|_| what())?,
            ack: number(text, " ack ").map(|ack| ack as u32),
            window: number(text, " win ").unwrap_or(0) as u16,
            options,
        })
    }
}

impl Player {
    fn new(text: &str) -> Self {
        let v6 = text.contains("--ip_version=ipv6");
        let tcp = TcpConfig {
            receive_buffer: WINDOW + 1,
            delayed_ack: number(text, "net.inet.tcp.delacktime=").unwrap_or(40) * MS,
            initial_rto: (1_000 + number(text, "net.inet.tcp.rexmit_slop=").unwrap_or(0)) * MS,
            sack: number(text, "net.inet.tcp.sack.enable=") != Some(0),
            timestamps: number(text, "net.inet.tcp.rfc1323=") != Some(0),
            window_scale: number(text, "net.inet.tcp.rfc1323=") != Some(0),
            ..TcpConfig::default()
        };
        let (stack, now) = (stack::Config { peer: Some(mac(1)), ..config(0, tcp) }, 10_000 * MS);
        Self {
            stack: Stack::new(stack),
            v6,
            now,
            begun: now,
            tolerance: number(text, "--tolerance_usecs=").unwrap_or(4_000) * 1_000,
            iss: None,
            ports: (SERVER, PEER),
            out: VecDeque::new(),
            all: BTreeMap::new(),
            closed: Vec::new(),
            buffer: WINDOW,
        }
    }

    fn flush(&mut self) {
        self.stack.advance(self.now);
        let mut frames = Frames::default();
        assert!(self.stack.transmit(self.now, &mut frames));
        while self.stack.event().is_some() {}
        for frame in frames.0 {
            let layers = Layers::find(&frame).expect("right headers");
            assert!(layers.is_intact(&frame), "a right checksum");
            let (header, payload) = Header::parse(layers.segment(&frame)).expect("a segment");
            if header.has(flag::SYN) {
                self.iss = Some(header.sequence);
            }
            self.ports = (header.source, header.destination);
            self.out.push_back((self.now, header, payload.len()));
        }
    }

    /// Each deadline up to `end`, or until something is sent.
    fn pass(&mut self, end: u64, until_sent: bool) {
        self.flush();
        while self.now < end && (!until_sent || self.out.is_empty()) {
            self.now = self.stack.next_at().clamp(self.now + MS / 10, end.max(self.now + 1));
            self.flush();
        }
    }

    fn inject(&mut self, said: &Said) {
        let iss = self.iss.unwrap_or(0);
        let mut options = said.options;
        for (left, right) in &mut options.sack {
            (*left, *right) = (left.wrapping_add(iss), right.wrapping_add(iss));
        }
        // what is beside the right edge of the script's window is beside that of ours
        let edge = if self.buffer > WINDOW + 1 { self.buffer - WINDOW } else { 0 };
        let sequence = if said.sequence >= WINDOW { said.sequence - edge } else { said.sequence };
        let header = Header {
            source: self.ports.1,
            destination: self.ports.0,
            sequence,
            acknowledgment: said.ack.map_or(0, |ack| ack.wrapping_add(iss)),
            flags: said.flags,
            window: said.window,
            options,
        };
        let frame = segment(0, self.v6, &header, &vec![0; said.len]);
        self.stack.receive(&frame, self.now);
    }

    fn expect(&mut self, said: &Said, at: u64) -> Result<(), Fault> {
        self.pass(at + self.tolerance, true);
        let (when, header, len) = self.out.pop_front().ok_or("nothing is sent")?;
        let iss = self.iss.unwrap_or(0);
        let sequence = header.sequence.wrapping_sub(iss);
        let text = || {
            let ack = header.acknowledgment;
            let blocks = header.options.blocks();
            format!("sent: flags {:#x} {sequence}({len}) ack {ack} {blocks:?}", header.flags)
        };
        let other = |flags: u8| flags & !flag::PSH;
        let mut sacks = [header.options.blocks().to_vec(), said.options.blocks().to_vec()];
        sacks.iter_mut().for_each(|blocks| blocks.sort_unstable());
        let kinds = |one: &Options, syn: bool| {
            (
                one.timestamps.is_some(),
                syn && one.sack_permitted,
                one.window_scale.is_some(),
                one.mss.is_some(),
            )
        };
        let syn = header.has(flag::SYN);
        let same = other(header.flags) == other(said.flags)
            && sequence == said.sequence
            && len == said.len
            && said.ack.is_none_or(|ack| ack == header.acknowledgment)
            && sacks[0] == sacks[1]
            && kinds(&header.options, syn) == kinds(&said.options, syn);
        if !same {
            return Err(text());
        }
        if when.abs_diff(at) > self.tolerance {
            return Err(format!("{}, {} ms off", text(), (when as i64 - at as i64) / MS as i64));
        }
        Ok(())
    }

    fn descriptor(&mut self, call: &str) -> Result<&mut Descriptor, Fault> {
        let number =
            call.split_once('(').and_then(|(_, rest)| number(rest, "")).ok_or("a descriptor is missing")?;
        self.all.get_mut(&(number as u32)).ok_or_else(|| format!("{number} is no descriptor"))
    }

    fn call(&mut self, call: &str) -> Result<(), Fault> {
        let (what, result) = call.rsplit_once(") =").ok_or_else(|| format!("{call} is no call"))?;
        let mut words = result.split_whitespace();
        let value: i64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let error = words.next().unwrap_or_default();
        let new = |handle| Descriptor { handle, peeked: 0, ended: false };
        match what.split('(').next().unwrap_or_default() {
            "socket" => _ = self.all.insert(value as u32, new(None)),
            "bind" | "fcntl" => {}
            "setsockopt" if what.contains("SOL_SOCKET") => {}
            "listen" => self.stack.listen(SERVER, 10),
            "connect" => {
                let remote = SocketAddr::new(ip(1, self.v6), SERVER);
                let handle =
                    self.stack.connect(ip(0, self.v6), remote, 1, self.now).map_err(|e| e.to_string())?;
                self.descriptor(call)?.handle = Some(handle);
            }
            "accept" => match (self.stack.accept(1), value) {
                (None, -1) => {}
                (Some(handle), 1..) => _ = self.all.insert(value as u32, new(Some(handle))),
                (found, _) => return Err(format!("accepted: {found:?}")),
            },
            "getsockopt" => self.option(what, call)?,
            "close" => {
                let Some(handle) = self.descriptor(call)?.handle else { return Ok(()) };
                self.stack.close(handle, self.now);
                self.closed.push(handle);
            }
            "shutdown" if what.contains("SHUT_WR") => {
                let handle = self.descriptor(call)?.handle.ok_or("not connected")?;
                self.stack.shut_down(handle, self.now);
            }
            "recv" | "read" => return self.receive(what, call, (value, error)),
            "send" | "sendto" | "write" => {
                let len = what
                    .split(',')
                    .nth(2)
                    .and_then(|word| word.trim().parse().ok())
                    .ok_or("a length is missing")?;
                let handle = self.descriptor(call)?.handle.ok_or("not connected")?;
                let took = self.stack.write(handle, &vec![0; len], self.now).map_err(|e| e.to_string())?;
                if took as i64 != value {
                    return Err(format!("took {took}"));
                }
            }
            other => return Err(format!("{other} is no call that is known")),
        }
        Ok(())
    }

    /// `SO_ERROR`; others are FreeBSD's own affair.
    fn option(&mut self, what: &str, call: &str) -> Result<(), Fault> {
        let said = what.split(['[', ']']).nth(1).unwrap_or_default();
        if what.contains("SO_RCVBUF") {
            self.buffer = said.parse().map_err(|_| format!("{said} is no size"))?;
        }
        if what.contains("TCP_KEEP") {
            return Err("keep-alives are not sent".to_owned());
        }
        if !what.contains("SO_ERROR") {
            return Ok(());
        }
        let now = self.now;
        let Some(handle) = self.descriptor(call)?.handle else { return Ok(()) };
        let broken = match self.stack.read(handle, &mut [], now) {
            Err(CloseReason::Refused) => "ECONNREFUSED",
            Err(CloseReason::Reset) => "ECONNRESET",
            Err(CloseReason::TimedOut) => "ETIMEDOUT",
            Err(_) => "EHOSTUNREACH",
            Ok(_) => "0",
        };
        if said == broken { Ok(()) } else { Err(format!("the error is {broken}")) }
    }

    fn receive(&mut self, what: &str, call: &str, (value, error): (i64, &str)) -> Result<(), Fault> {
        let now = self.now;
        let one = self.descriptor(call)?;
        let (handle, mut peeked, mut ended) = (one.handle.ok_or("not connected")?, one.peeked, one.ended);
        let broken = loop {
            match self.stack.read(handle, &mut [0; 4096], now) {
                Ok(Received::Bytes(len, _)) => peeked += len,
                Ok(Received::Dry) => break None,
                Ok(Received::End) => {
                    ended = true;
                    break None;
                }
                Err(why) => break Some(why),
            }
        };
        let got = match broken {
            Some(why) if peeked == 0 => return if value < 0 { Ok(()) } else { Err(why.to_string()) },
            None if peeked == 0 && !ended => -1,
            _ => peeked as i64,
        };
        let took = if what.contains("MSG_PEEK") { 0 } else { peeked };
        let one = self.descriptor(call)?;
        (one.peeked, one.ended) = (peeked - took, ended);
        if got == value && (value >= 0 || error == "EWOULDBLOCK" || error == "EAGAIN") {
            Ok(())
        } else {
            Err(format!("received {got}"))
        }
    }

    /// `assert tcpi_state == TCPI_…` of the connection that was looked at last.
    fn assert(&self, text: &str) -> Result<(), Fault> {
        let said = text.split("TCPI_").nth(1).unwrap_or_default().trim_end_matches([' ', '}', '%']);
        let said: String = said.to_lowercase().split('_').collect();
        let known = self.all.values().rev().find_map(|one| one.handle);
        let state = known.and_then(|handle| self.stack.status(handle)).map(|status| status.state);
        let is = state.map_or("Closed".to_owned(), |state| format!("{state:?}"));
        if is.to_lowercase() == said { Ok(()) } else { Err(format!("it is {is}")) }
    }

    /// How many connections are in a state, as `sockstat` says it.
    fn command(&mut self, text: &str) -> Result<(), Fault> {
        let Some((_, rest)) = text.split_once("grep -c ") else { return Ok(()) };
        let state = rest.split_whitespace().next().unwrap_or_default();
        let said = number(rest, "grep ");
        let known = self.all.values().filter_map(|one| one.handle).chain(self.closed.iter().copied());
        let states: Vec<State> = known.filter_map(|handle| Some(self.stack.status(handle)?.state)).collect();
        let is = match state {
            "TIME_WAIT" => states.iter().filter(|state| **state == State::TimeWait).count(),
            "CLOSED" => states.iter().filter(|state| **state == State::Closed).count(),
            // of those that nobody has accepted
            "SYN_RCVD" => self.stack.connections() - states.len(),
            _ => return Err(format!("{state} is no state that is known")),
        };
        if said == Some(is as u64) { Ok(()) } else { Err(format!("{is} are in {state}")) }
    }

    fn play(text: &str) -> Result<(), Fault> {
        let mut player = Self::new(text);
        let (mut at, mut skips) = (player.begun, false);
        for line in text.lines() {
            let line = line.split("//").next().unwrap_or_default().trim();
            match line {
                "#ifdef FreeBSD" => skips = true,
                "#endif" => skips = false,
                _ => {}
            }
            if line.is_empty() || skips || line.starts_with(['-', '#', '/', '*']) {
                continue;
            }
            let (time, what) = line.split_once(' ').ok_or_else(|| format!("{line} is not understood"))?;
            let seconds: f64 =
                time.trim_start_matches('+').parse().map_err(|_| format!("{time} is no time"))?;
            let passed = (seconds * 1e9) as u64;
            at = if time.starts_with('+') { at + passed } else { player.begun + passed };
            let what = what.trim();
            let done = if let Some(said) = what.strip_prefix('>') {
                Said::parse(said.trim()).and_then(|said| player.expect(&said, at))
            } else {
                player.pass(at, false);
                let done = if let Some(said) = what.strip_prefix('<') {
                    Said::parse(said.trim()).map(|said| player.inject(&said))
                } else if what.starts_with("%{ assert tcpi_state ==") {
                    player.assert(what)
                } else if what.starts_with('`') {
                    player.command(what.trim_matches('`'))
                } else {
                    player.call(what)
                };
                player.flush();
                done
            };
            done.map_err(|why| format!("{line}: {why}"))?;
        }
        Ok(())
    }
}

/// Scripts of a file: each begins with a line `== NAME`.
fn scripts(text: &str) -> Vec<(&str, &str)> {
    let parts = text.split("\n== ").skip(1);
    parts.filter_map(|part| part.split_once('\n')).collect()
}

#[test]
fn scripts_for_freebsd_play_as_they_are_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packetdrill");
    let (mut played, mut wrong) = (0, Vec::new());
    for file in std::fs::read_dir(folder).expect("the folder").map(|file| file.expect("a file").path()) {
        if file.extension().is_none_or(|ext| ext != "txt") {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("text");
        for (name, script) in scripts(&text) {
            played += 1;
            if let Err(why) = Player::play(script) {
                wrong.push(format!("{name}: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {played}:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(played, 616, "as docs/howto/dpdk.md says");
}

#[test]
fn a_script_that_goes_wrong_says_where() {
    let script = "0.00 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n\
        +0.00 connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)\n\
        +0.00 > S 0:0(0) win 65535 <mss 1460,nop,wscale 6,sackOK,TS val 100 ecr 0>\n\
        +0.10 < S. 0:0(0) ack 1 win 32767 <mss 1460>\n\
        +0.00 > . 1:1(0) ack 2 win 65535\n";
    let why = Player::play(script).expect_err("ack 1 is sent");
    assert!(why.starts_with("+0.00 > . 1:1(0) ack 2") && why.contains("1(0) ack 1"), "{why}");
    let late = script.replace("0.10 <", "0.10 > S 0:0(0)\n+0.00 <");
    assert!(Player::play(&late).expect_err("too early").contains("nothing is sent"));
}

/// What `packetdrill/` was made of: how many scripts pass, by directory, and the faults of the others.
#[test]
#[ignore = "needs the suite's scripts: PACKETDRILL=FOLDER cargo test -p stack -- --ignored --nocapture the_whole_suite"]
fn the_whole_suite() {
    let root = std::env::var("PACKETDRILL").expect("PACKETDRILL names its folder");
    let mut folders = vec![Path::new(&root).to_path_buf()];
    let mut counts = BTreeMap::<_, (usize, usize)>::new();
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).expect("a folder").map(|file| file.expect("a file").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "pkt") {
                let name = path.strip_prefix(&root).expect("below it").to_path_buf();
                let top = name.iter().next().unwrap_or_default().to_owned();
                let done = Player::play(&std::fs::read_to_string(&path).expect("text"));
                let (all, passed) = counts.entry(top).or_default();
                (*all, *passed) = (*all + 1, *passed + usize::from(done.is_ok()));
                println!("{} {}", name.display(), done.err().unwrap_or("passes".to_owned()));
            }
        }
    }
    for (top, (all, passed)) in counts {
        println!("{}: {passed} of {all}", top.display());
    }
}
