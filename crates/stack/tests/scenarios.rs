//! Scenarios as text: segments in and out of one connection, for each state and rule. See `scenarios/README.md`.

use crate::wire::{Frames, MS, config, ip, mac, segment};
use packet::Layers;
use packet::tcp::{Header, Options, flag};
use stack::{CongestionControl, Handle, Received, Stack, TcpConfig};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;

/// The peer's initial sequence number.
const PEER_ISS: u32 = 1_000_000;
const FLAGS: [(&str, u8); 6] = [
    ("SYN", flag::SYN),
    ("FIN", flag::FIN),
    ("RST", flag::RST),
    ("PSH", flag::PSH),
    ("URG", flag::URG),
    ("ACK", flag::ACK),
];

struct Script {
    stack: Stack,
    now: u64,
    handle: Option<Handle>,
    iss: u32,
    port: u16,
    out: VecDeque<(Header, usize)>,
    given: u8,
}

fn tcp(words: &[&str]) -> TcpConfig {
    let has = |word| words.contains(&word);
    let buffer = words.iter().find_map(|word| word.strip_prefix("buffer=")).and_then(|n| n.parse().ok());
    TcpConfig {
        sack: has("sack"),
        timestamps: has("timestamps"),
        window_scale: has("scale"),
        receive_buffer: buffer.unwrap_or(65_535),
        keep_alive: words.iter().find_map(|word| word.strip_prefix("keepalive=")?.parse().ok()).unwrap_or(0)
            * MS,
        control: if has("cubic") { CongestionControl::Cubic } else { CongestionControl::NewReno },
        ..TcpConfig::default()
    }
}

/// `10` of `seq 10`.
fn number(words: &[&str], key: &str) -> Option<u32> {
    let at = words.iter().position(|word| *word == key)?;
    Some(words.get(at + 1)?.parse().unwrap_or_else(|_| panic!("{words:?}: a number after {key}")))
}

/// Pairs like `2921-4381` after `sack`.
fn blocks(words: &[&str]) -> Vec<(u32, u32)> {
    let Some(at) = words.iter().position(|word| *word == "sack") else { return Vec::new() };
    let pair = |word: &&str| {
        let (left, right) = word.split_once('-')?;
        Some((left.parse().ok()?, right.parse().ok()?))
    };
    words[at + 1..].iter().map_while(pair).collect()
}

impl Script {
    fn new(words: &[&str]) -> Self {
        let mut config = config(0, tcp(words));
        config.peer = Some(mac(1));
        let (stack, now) = (Stack::new(config), 10_000 * MS);
        Self { stack, now, handle: None, iss: 0, port: 40_000, out: VecDeque::new(), given: 0 }
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
            if header.flags & flag::SYN != 0 {
                self.iss = header.sequence;
                self.port = header.source;
            }
            self.out.push_back((header, payload.len()));
        }
        if self.handle.is_none() {
            self.handle = self.stack.accept(1);
        }
    }

    /// Send the stack a segment of its peer.
    fn inject(&mut self, words: &[&str], listens: bool) {
        let flags = words[0].split('+').filter(|word| *word != "-");
        let flags = flags.map(|word| FLAGS.iter().find(|(name, _)| *name == word).expect(word).1).sum();
        let mut options = Options::default();
        if flags & flag::SYN != 0 {
            options.mss = Some(number(words, "mss").unwrap_or(1000) as u16);
            options.sack_permitted = words.contains(&"sackok");
            options.window_scale = number(words, "scale").map(|shift| shift as u8);
        }
        options.timestamps = number(words, "ts").map(|value| (value, 0));
        for (place, (left, right)) in options.sack.iter_mut().zip(blocks(words)) {
            *place = (self.iss.wrapping_add(left), self.iss.wrapping_add(right));
            options.sacks += 1;
        }
        let header = Header {
            source: if listens { 50_000 } else { 80 },
            destination: if listens { 80 } else { self.port },
            sequence: PEER_ISS.wrapping_add(number(words, "seq").unwrap_or(0)),
            acknowledgment: number(words, "ack").map_or(0, |ack| self.iss.wrapping_add(ack)),
            flags,
            window: number(words, "win").unwrap_or(60_000) as u16,
            options,
        };
        let len = number(words, "len").unwrap_or(0) as usize;
        let frame = segment(0, false, &header, &vec![0; len]);
        self.stack.receive(&frame, self.now);
    }

    fn text(&self, (header, len): &(Header, usize)) -> String {
        let flags: Vec<&str> =
            FLAGS.iter().filter(|(_, bit)| header.has(*bit)).map(|(name, _)| *name).collect();
        let mut text = format!("{} seq {} ", flags.join("+"), header.sequence.wrapping_sub(self.iss));
        if header.has(flag::ACK) {
            text += &format!("ack {} ", header.acknowledgment.wrapping_sub(PEER_ISS));
        }
        text += &format!("len {len} win {}", header.window);
        for (left, right) in header.options.blocks() {
            text += &format!(" sack {}-{}", left.wrapping_sub(PEER_ISS), right.wrapping_sub(PEER_ISS));
        }
        text
    }

    /// Check that the next segment out is as said: words that are not said may be anything.
    fn expect(&mut self, words: &[&str]) -> Result<(), String> {
        if words == ["nothing"] {
            return match self.out.front() {
                None => Ok(()),
                Some(sent) => Err(format!("sent: {}", self.text(sent))),
            };
        }
        let sent = self.out.pop_front().ok_or("nothing was sent")?;
        let text = self.text(&sent);
        let all: Vec<&str> = text.split(' ').collect();
        let same = |key: &&str| number(words, key).is_none() || number(words, key) == number(&all, key);
        let fits = words[0] == all[0] && ["seq", "ack", "len", "win"].iter().all(same);
        let said: Vec<(u32, u32)> = blocks(words);
        let sacks: Vec<(u32, u32)> = sent
            .0
            .options
            .blocks()
            .iter()
            .map(|(left, right)| (left.wrapping_sub(PEER_ISS), right.wrapping_sub(PEER_ISS)))
            .collect();
        if fits && (!words.contains(&"sack") || said == sacks) {
            Ok(())
        } else {
            Err(format!("sent: {text}"))
        }
    }

    fn line(&mut self, words: &[&str], listens: &mut bool) -> Result<(), String> {
        let amount = || words.get(1).and_then(|n| n.parse::<usize>().ok()).ok_or("a number is missing");
        let handle = || self.handle.ok_or("no connection yet");
        if words[0] == ">" {
            return self.expect(&words[1..]);
        }
        if let Some(sent) = self.out.front().filter(|_| words[0] != "state") {
            return Err(format!("nobody expected: {}", self.text(sent)));
        }
        match words[0] {
            "listen" => {
                *listens = true;
                self.stack.listen(80, 10);
            }
            "connect" => {
                let remote = SocketAddr::new(ip(1, false), 80);
                self.handle =
                    Some(self.stack.connect(ip(0, false), remote, 1, self.now).map_err(|e| e.to_string())?);
            }
            "write" => {
                let (n, handle) = (amount()?, handle()?);
                let bytes: Vec<u8> = (0..n).map(|i| self.given.wrapping_add(i as u8)).collect();
                let took = self.stack.write(handle, &bytes, self.now).map_err(|e| e.to_string())?;
                self.given = self.given.wrapping_add(took as u8);
                if took != n {
                    return Err(format!("took {took}"));
                }
            }
            "read" => {
                let (n, handle) = (amount()?, handle()?);
                let mut buffer = vec![0; n + 1];
                match self.stack.read(handle, &mut buffer[..n.max(1)], self.now) {
                    Ok(Received::Bytes(got, _)) if got == n => {}
                    Ok(Received::Dry) if n == 0 => {}
                    other => return Err(format!("{other:?}")),
                }
            }
            "end" => match self.stack.read(handle()?, &mut [0], self.now) {
                Ok(Received::End) => {}
                other => return Err(format!("{other:?}")),
            },
            "broken" => match self.stack.read(handle()?, &mut [0], self.now) {
                Err(broken) if broken.to_string() == words[1..].join(" ") => {}
                other => return Err(format!("{other:?}")),
            },
            "close" => self.stack.close(handle()?, self.now),
            "shut" => self.stack.shut_down(handle()?, self.now),
            "abort" => self.stack.abort(handle()?, self.now),
            "wait" => {
                // each deadline for itself, as a caller with a clock would
                let end = self.now + amount()? as u64 * MS;
                while self.now < end {
                    self.now = self.stack.next_at().clamp(self.now + MS / 10, end);
                    self.flush();
                }
            }
            "state" => {
                let state =
                    handle().ok().and_then(|handle| self.stack.status(handle)).map(|status| status.state);
                let is = state.map_or("gone".to_owned(), |state| format!("{state:?}"));
                if is != words[1] {
                    return Err(format!("it is {is}"));
                }
            }
            "<" => self.inject(&words[1..], *listens),
            other => return Err(format!("{other} is no command")),
        }
        self.flush();
        Ok(())
    }

    fn play(text: &str) -> Result<(), String> {
        let lines = text.lines().enumerate().map(|(n, line)| (n + 1, line.split('#').next().unwrap_or("")));
        let mut lines = lines.filter(|(_, line)| !line.trim().is_empty()).peekable();
        let first: Vec<&str> =
            lines.peek().map(|(_, line)| line.split_whitespace().collect()).unwrap_or_default();
        let mut script = Self::new(&first);
        if first.first() == Some(&"config") {
            lines.next();
        }
        let mut listens = false;
        for (n, line) in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            script.line(&words, &mut listens).map_err(|why| format!("line {n}: {}: {why}", line.trim()))?;
        }
        match script.out.front() {
            Some(sent) => Err(format!("at the end: {}", script.text(sent))),
            None => Ok(()),
        }
    }
}

#[test]
fn each_scenario_plays_as_it_is_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("the folder").map(|file| file.expect("a file").path()).collect();
    files.retain(|file| file.extension().is_some_and(|ext| ext == "txt"));
    files.sort();
    assert!(files.len() >= 30, "{}", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("text");
        if let Err(why) = Script::play(&text) {
            wrong.push(format!("{}: {why}", file.file_name().unwrap_or_default().display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_scenario_that_goes_wrong_says_where() {
    let why = Script::play("connect\n> SYN seq 0\n< SYN+ACK seq 0 ack 1\n> ACK seq 1 ack 2")
        .expect_err("ack 1 is sent");
    assert!(why.starts_with("line 4: ") && why.contains("sent: ACK seq 1 ack 1"), "{why}");
    assert!(Script::play("connect\n").expect_err("a SYN").contains("at the end: SYN"));
}
