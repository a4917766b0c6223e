//! Ladders as the RFCs draw them: `>` is what the device sends, `<` what the server does, `@` moves the time.

use super::*;
use crate::describe::{ModelKind, ModelParams};
use crate::meter::Phase;
use crate::model::{FlowEnd, Link};
use crate::target::Target;
use crate::testing::{Bench, noise};
use proptest::prelude::*;
use wire::{Block, MessageType, Writer};

mod blockwise;
mod echoing;
mod messaging;
mod observing;
mod parameters;

fn config(json: &str) -> Arc<Config> {
    let params: Params = serde_json::from_str(json).expect(json);
    let target = Target { scheme: DESCRIPTION.schemes[0], host: "192.0.2.1".into(), port: 5683, ipv6: false };
    Arc::new(params.compile(&target).expect(json))
}

/// A device and what it has sent; the server is the test.
struct Ladder {
    bench: Bench<Device>,
    sent: VecDeque<Vec<u8>>,
    /// Identifier of the first message, which ladders call 0.
    first: Option<u16>,
    /// Token of the device's latest message.
    token: Vec<u8>,
}

impl Ladder {
    fn of(json: &str) -> Self {
        Self {
            bench: Bench::of(config(json).device(0), &DESCRIPTION),
            sent: VecDeque::new(),
            first: None,
            token: Vec::new(),
        }
    }

    fn start(json: &str) -> Self {
        let mut ladder = Self::of(json);
        ladder.bench.start();
        ladder.settle();
        ladder
    }

    /// Take what was sent, and let what is due now happen.
    fn settle(&mut self) {
        loop {
            let segment = std::mem::take(&mut self.bench.out.segment).max(1);
            let bytes = std::mem::take(&mut self.bench.out.bytes);
            self.sent.extend(bytes.chunks(segment).map(<[u8]>::to_vec));
            if self.bench.wake > self.bench.now {
                break;
            }
            self.bench.wake = Time::NEVER;
            self.bench.call(|model, cx| model.timer(cx));
        }
    }

    fn until_ms(&mut self, ms: u64) {
        let until = Time(ms * 1_000_000);
        while self.bench.wake <= until {
            self.bench.now = self.bench.wake.max(self.bench.now);
            self.settle();
        }
        self.bench.now = until;
    }

    /// Let time pass until something is sent; gives when that was, in milliseconds.
    fn until_sent(&mut self) -> u64 {
        while self.sent.is_empty() && self.bench.wake < Time::NEVER {
            self.until_ms(self.bench.wake.0.div_ceil(1_000_000));
        }
        self.bench.now.0 / 1_000_000
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.bench.datagram(bytes);
        self.settle();
    }

    fn stop(&mut self) {
        self.bench.stop();
        self.settle();
    }

    /// The next datagram in words.
    fn next(&mut self) -> Option<String> {
        let bytes = self.sent.pop_front()?;
        let header = Header::parse(&bytes).expect("a header");
        let first = *self.first.get_or_insert(header.id);
        let (kind, code) = (header.kind, header.code);
        let own = code != Code::EMPTY;
        let id = if own { header.id.wrapping_sub(first) } else { header.id };
        let mut text = format!("{} {id}", format!("{kind:?}").to_uppercase());
        if own {
            let methods = ["GET", "POST", "PUT", "DELETE"];
            text += &format!(" {} ", methods[usize::from(code.0) - 1]);
            self.token = bytes[4..8].to_vec();
            text += &options(&bytes[8..]);
        }
        Some(text)
    }

    /// Play a ladder, one line at a time.
    fn play(&mut self, ladder: &str) {
        for line in ladder.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (who, what) = line.split_at(1);
            let what = what.trim();
            match who {
                ">" => assert_eq!(self.next().as_deref(), Some(what), "{line}"),
                "<" => {
                    let bytes = self.message(what);
                    self.hear(&bytes);
                }
                "@" => self.until_ms(what.parse().expect("milliseconds")),
                _ => panic!("{line}"),
            }
        }
        assert_eq!(self.next(), None, "nothing more is sent");
    }

    /// A message of the server's: type, identifier (in acknowledgements and resets the device's), code, then options and
    /// payload: `2:0/1/64` Block2, `1:…` Block1, `obs=` Observe, `age=` Max-Age, `etag=`, `echo=`, `opt=` any, `token=`, `[64]` bytes.
    fn message(&self, text: &str) -> Vec<u8> {
        let mut words = text.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let kind = match word() {
            "CON" => MessageType::Con,
            "NON" => MessageType::Non,
            "ACK" => MessageType::Ack,
            _ => MessageType::Rst,
        };
        let mut id: u16 = word().parse().expect("an identifier");
        if matches!(kind, MessageType::Ack | MessageType::Rst) {
            id = id.wrapping_add(self.first.expect("a first message"));
        }
        let code = match word() {
            "" => Code::EMPTY,
            code => {
                let (class, detail) = code.split_once('.').expect("a code");
                Code::of(class.parse().expect("a class"), detail.parse().expect("a detail"))
            }
        };
        let (mut token, mut options, mut payload) = (self.token.clone(), Vec::new(), 0);
        if code == Code::EMPTY {
            token.clear();
        }
        for word in words {
            let number = |text: &str| text.parse::<u32>().expect("a number");
            if let Some(len) = word.strip_prefix('[') {
                payload = number(len.trim_end_matches(']')) as usize;
            } else if let Some((name, value)) = word.split_once('=') {
                match name {
                    "obs" => options.push((wire::OBSERVE, number(value))),
                    "age" => options.push((wire::MAX_AGE, number(value))),
                    "echo" => options.push((wire::ECHO, number(value))),
                    "etag" => options.push((wire::ETAG, number(value))),
                    "opt" => options.push((number(value) as u16, 0)),
                    _ => token = value.as_bytes().to_vec(),
                }
            } else if let Some((which, block)) = word.split_once(':') {
                let mut parts = block.split('/').map(number);
                let mut part = || parts.next().expect("three numbers");
                let (number, more, size) = (part(), part() == 1, part());
                let szx = if size == 2048 { 7 } else { (size.trailing_zeros() - 4) as u8 };
                let option = if which == "1" { wire::BLOCK1 } else { wire::BLOCK2 };
                options.push((option, Block { number, more, szx }.value()));
            }
        }
        options.sort_by_key(|(number, _)| *number);
        let mut out = Vec::new();
        let mut writer = Writer::begin(&mut out, kind, code, id, &token);
        options.iter().for_each(|(number, value)| writer.uint(*number, *value));
        writer.payload(|out| out.resize(out.len() + payload, b'x'));
        out
    }

    fn failures(&self, why: Failure) -> u64 {
        self.bench.failures(why)
    }

    fn delivered(&self) -> u64 {
        self.bench.measured().messages_delivered
    }

    fn example(&mut self) -> String {
        self.bench.examples.pop().unwrap_or_default()
    }
}

/// Options and payload of a request in words.
fn options(mut bytes: &[u8]) -> String {
    let (mut path, mut query, mut rest) = (String::new(), String::new(), String::new());
    let mut number = 0;
    let extended = |nibble: u8, bytes: &mut &[u8]| match nibble {
        13 => {
            let value = usize::from(bytes[0]) + 13;
            *bytes = &bytes[1..];
            value
        }
        small => usize::from(small),
    };
    while let Some((&first, after)) = bytes.split_first() {
        bytes = after;
        if first == 0xff {
            let text = String::from_utf8_lossy(bytes);
            rest += &if bytes.len() > 20 { format!(" [{}]", bytes.len()) } else { format!(" {text:?}") };
            break;
        }
        number += extended(first >> 4, &mut bytes);
        let len = extended(first & 15, &mut bytes);
        let (value, after) = bytes.split_at(len);
        bytes = after;
        let text = String::from_utf8_lossy(value);
        let plain = value.iter().fold(0u32, |number, byte| number << 8 | u32::from(*byte));
        let block = || format!("{}/{}/{}", plain >> 4, plain >> 3 & 1, 16 << (plain & 7));
        match number as u16 {
            wire::URI_HOST => rest += &format!(" host={text}"),
            wire::URI_PATH => path += &format!("/{text}"),
            wire::URI_QUERY => query += &format!("{}{text}", if query.is_empty() { '?' } else { '&' }),
            wire::OBSERVE => rest += &format!(" obs={plain}"),
            wire::BLOCK1 => rest += &format!(" 1:{}", block()),
            wire::BLOCK2 => rest += &format!(" 2:{}", block()),
            wire::SIZE1 => rest += &format!(" size={plain}"),
            number => rest += &format!(" {number}={plain}"),
        }
    }
    if path.is_empty() {
        path.push('/');
    }
    format!("{path}{query}{rest}")
}

#[test]
fn a_device_is_small() {
    assert!(std::mem::size_of::<Device>() <= 120, "{}", std::mem::size_of::<Device>());
    assert!(std::mem::size_of::<exchange::Exchange>() <= 64, "{}", std::mem::size_of::<exchange::Exchange>());
}

proptest! {
    #[test]
    fn nothing_that_comes_breaks_a_device(data in prop::collection::vec(any::<u8>(), 0..600)) {
        noise(Params::default(), |config| Arc::new(config).device(0), &data);
    }

    /// What looks like a message of the server's more than noise does.
    #[test]
    fn no_message_breaks_a_device(
        choice: u8,
        messages in prop::collection::vec(
            (0u8..4, prop::sample::select(vec![0u8, 1, 0x41, 0x44, 0x45, 0x5f, 0x81, 0x84, 0x8d, 0xa0]), 0u16..4, any::<bool>(),
             prop::collection::vec((prop::sample::select(vec![4u16, 6, 9, 14, 23, 27, 28, 252]), any::<u32>()), 0..4),
             0usize..70, 0u64..300),
            0..60,
        ),
    ) {
        let mut params = Params::default();
        let mut scheme = DESCRIPTION.schemes[0];
        params.for_noise(choice, &mut scheme);
        let target = Target { scheme, host: "h".into(), port: 1, ipv6: false };
        let mut ladder = Ladder::of("{}");
        ladder.bench.model = Arc::new(params.compile(&target).expect("good")).device(0);
        ladder.bench.start();
        ladder.settle();
        for (kind, code, back, ours, mut options, payload, wait) in messages {
            while ladder.next().is_some() {}
            let last = ladder.bench.model.last_id;
            let kind = [MessageType::Con, MessageType::Non, MessageType::Ack, MessageType::Rst][usize::from(kind)];
            let mut out = Vec::new();
            let token = if ours { ladder.token.clone() } else { vec![1; 4] };
            let mut writer = Writer::begin(&mut out, kind, Code(code), last.wrapping_sub(back), &token);
            options.sort_by_key(|(number, _)| *number);
            options.iter().for_each(|(number, value)| writer.uint(*number, *value & 0x3ff));
            writer.payload(|out| out.resize(out.len() + payload, 0));
            if ladder.bench.end.is_none() {
                ladder.hear(&out);
                let now = ladder.bench.now.0 / 1_000_000;
                ladder.until_ms(now + wait);
            }
            prop_assert!(ladder.bench.model.exchanges.len() < 4096);
        }
        ladder.bench.abandon();
        let counts = ladder.bench.measured();
        let failed: u64 = counts.failures.iter().sum();
        prop_assert!(counts.messages_sent <= counts.messages_delivered + failed);
    }
}
