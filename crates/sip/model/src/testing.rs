//! The other side of a user agent, made of arbitrary bytes: for fuzzing and for floods.

use crate::agent::UserAgent;
use crate::scenario::{Preset, Scenario};
use crate::{DESCRIPTION, Media, Params};
use protocol::describe::ModelKind;
use protocol::meter::Failure;
use protocol::model::{Link, Model};
use protocol::target::Target;
use protocol::testing::Bench;
use protocol::time::Time;
use std::sync::Arc;
use std::time::Duration;

/// Messages and transactions that a user agent keeps at most, whatever comes, and their bytes.
pub const ENTRIES_MAX: usize = 100;
/// Bytes of them, where no message is longer than 16 KiB.
pub const BYTES_MAX: usize = 1 << 20;

const PRESETS: [Preset; 18] = [
    Preset::Register,
    Preset::Reregister,
    Preset::Unregister,
    Preset::StayRegistered,
    Preset::Call,
    Preset::HeldCall,
    Preset::Cancel,
    Preset::Redirect,
    Preset::Options,
    Preset::Message,
    Preset::Subscribe,
    Preset::Answer,
    Preset::Uas,
    Preset::EarlyMedia,
    Preset::AnswerEarlyMedia,
    Preset::Busy,
    Preset::NoAnswer,
    Preset::Call,
];
const METHODS: [&str; 12] = [
    "INVITE", "ACK", "BYE", "CANCEL", "OPTIONS", "REGISTER", "PRACK", "UPDATE", "INFO", "MESSAGE", "NOTIFY",
    "FOO",
];
const STATUSES: [u16; 16] = [100, 180, 183, 200, 202, 302, 401, 407, 408, 422, 423, 481, 486, 487, 503, 603];
const SDP: &str =
    "v=0\r\no=- 1 1 IN IP4 10.0.0.9\r\ns=-\r\nc=IN IP4 10.0.0.9\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0 101\r\n";
const FIELDS: [&str; 16] = [
    "Contact: <sip:b@10.0.0.9:5080>\r\n",
    "Record-Route: <sip:p1;lr>\r\n",
    "Record-Route: <sip:10.0.0.8>, <sip:10.0.0.7;lr>\r\n",
    "Require: 100rel\r\nRSeq: 1\r\n",
    "Require: 100rel\r\nRSeq: 2\r\n",
    "Supported: 100rel\r\n",
    "RAck: 1 1 INVITE\r\n",
    "WWW-Authenticate: Digest realm=\"r\", nonce=\"n\", qop=\"auth,auth-int\"\r\n",
    "Proxy-Authenticate: Digest realm=\"p\", nonce=\"m\", algorithm=SHA-256, stale=true\r\n",
    "Min-Expires: 90\r\n",
    "Retry-After: 1\r\n",
    "Require: foo\r\n",
    "Contact: *\r\nExpires: 0\r\n",
    "Content-Encoding: gzip\r\n",
    "Session-Expires: 90\r\n",
    "Via: SIP/2.0/UDP h;branch=z9hG4bKx\r\n",
];

/// A user agent that plays `preset` towards a server that the caller plays.
fn bench(preset: Preset, over_tcp: bool, with_audio: bool) -> Option<Bench<UserAgent>> {
    let name = if over_tcp { "sip+tcp" } else { "sip" };
    let scheme = *crate::description::SCHEMES.iter().find(|scheme| scheme.name == name)?;
    let target = Target { scheme, host: "sip.example.net".into(), port: 5060, ipv6: false };
    let media = with_audio.then(Media::default);
    let password = Some("secret".into());
    let params =
        Params { scenario: Scenario::Preset(preset), run: 0xab, media, password, ..Params::default() };
    let mut bench = Bench::of(UserAgent::new(Arc::new(params.compile(&target).ok()?)), &DESCRIPTION);
    bench.media = with_audio.then(|| ([10, 0, 0, 1], 30_000).into());
    bench.peer = Some(([10, 0, 0, 2], 5060).into());
    Some(bench)
}

/// The other side.
struct Peer<'a> {
    data: &'a [u8],
    /// The user agent's latest messages.
    heard: Vec<String>,
}

impl Peer<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.data.split_first()?;
        self.data = rest;
        Some(*first)
    }

    /// Note what the user agent sent.
    fn hear(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let ends = text.match_indices("\r\n\r\n").map(|(at, _)| at + 4);
        let mut from = 0;
        for end in ends {
            self.heard.push(text[from..end].to_owned());
            from = end;
        }
        self.heard.drain(..self.heard.len().saturating_sub(8));
    }

    /// A header field of one of these messages.
    fn field(&self, which: u8, name: &str) -> String {
        let message = self.heard.iter().rev().nth(usize::from(which) % self.heard.len().max(1));
        let value = message.and_then(|text| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned))
        });
        value.unwrap_or_else(|| format!("<sip:x@y>;{name}"))
    }

    /// Header fields and a body.
    fn end(&mut self) -> Option<String> {
        let bits = u16::from_le_bytes([self.byte()?, self.byte()?]);
        let chosen = FIELDS.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0);
        let fields: String = chosen.map(|(_, field)| *field).collect();
        Some(match self.byte()? % 5 {
            0 => {
                format!("{fields}Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{SDP}", SDP.len())
            }
            1 => {
                let body = format!("--b\r\nContent-Type: application/sdp\r\n\r\n{SDP}\r\n--b--\r\n");
                let length = body.len();
                format!(
                    "{fields}Content-Type: multipart/mixed;boundary=b\r\nContent-Length: {length}\r\n\r\n{body}"
                )
            }
            2 => format!("{fields}Content-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi"),
            _ => format!("{fields}Content-Length: 0\r\n\r\n"),
        })
    }

    /// A response to one of its requests.
    fn response(&mut self) -> Option<String> {
        let (which, status, tag) = (self.byte()?, self.byte()?, self.byte()?);
        let status = STATUSES.get(usize::from(status)).copied().unwrap_or(100 + u16::from(status) * 2);
        let [via, from, call, cseq] =
            ["Via", "From", "Call-ID", "CSeq"].map(|name| format!("{name}: {}\r\n", self.field(which, name)));
        let to = self.field(which, "To");
        let tag =
            if tag % 4 == 0 || to.contains(";tag=") { String::new() } else { format!(";tag=t{}", tag % 64) };
        let end = self.end()?;
        Some(format!("SIP/2.0 {status} X\r\n{via}{from}To: {to}{tag}\r\n{call}{cseq}{end}"))
    }

    /// A request, within its dialog or a stranger's.
    fn request(&mut self) -> Option<String> {
        let (which, method, cseq, how) = (self.byte()?, self.byte()?, self.byte()?, self.byte()?);
        let method = METHODS[usize::from(method) % METHODS.len()];
        let call = if how & 1 == 0 { self.field(which, "Call-ID") } else { format!("c{}", how >> 4) };
        // what was From of its request or To of its response is our To
        let (to, from) = if how & 2 == 0 { ("From", "To") } else { ("To", "From") };
        let (to, from) = (self.field(which, to), self.field(which, from));
        let to = if how & 4 == 0 { to } else { "<sip:a@b>".to_owned() };
        let end = self.end()?;
        Some(format!(
            "{method} sip:nd00000000@10.0.0.1:40000 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.2;branch=z9hG4bK{cseq}{method}\r\n\
             From: {from}\r\nTo: {to}\r\nCall-ID: {call}\r\nCSeq: {cseq} {method}\r\n{end}"
        ))
    }
}

/// A user agent and its other side, whose messages, timers and losses are drawn from `data`: nothing may break it, and what it keeps
/// is bounded.
pub fn talk(data: &[u8]) {
    let Some((&[preset, how], data)) = data.split_first_chunk::<2>() else { return };
    let over_tcp = how & 1 != 0;
    let Some(mut bench) = bench(PRESETS[usize::from(preset) % PRESETS.len()], over_tcp, how & 2 != 0) else {
        return;
    };
    let mut peer = Peer { data, heard: Vec::new() };
    begin(&mut bench);
    while let Some(op) = peer.byte() {
        let bytes = std::mem::take(&mut bench.out.bytes);
        peer.hear(&bytes);
        bench.out.clear();
        step(&mut bench, &mut peer, op, over_tcp);
        let (entries, bytes) = bench.model.footprint();
        assert!(entries <= ENTRIES_MAX && bytes <= BYTES_MAX, "{entries} entries, {bytes} bytes");
        if bench.end.take().is_some() {
            bench.call(|device, cx| device.cleaned_up(cx));
            begin(&mut bench);
        }
    }
    bench.abandon();
    bench.call(|device, cx| device.clean_up(cx));
    bench.call(|device, cx| device.cleaned_up(cx));
    assert!(!bench.model.leaves_behind());
}

fn begin(bench: &mut Bench<UserAgent>) {
    let local = Some(([10, 0, 0, 1], 40_000).into());
    bench.local = None;
    bench.start();
    bench.local = local;
    if bench.link == Link::Connect {
        bench.connected();
    }
}

fn step(bench: &mut Bench<UserAgent>, peer: &mut Peer<'_>, op: u8, over_tcp: bool) {
    let message = match op {
        0..=95 => peer.response(),
        96..=175 => peer.request(),
        176..=191 => peer.byte().map(|length| {
            let (piece, rest) = peer.data.split_at(peer.data.len().min(usize::from(length)));
            peer.data = rest;
            String::from_utf8_lossy(piece).into_owned()
        }),
        192..=239 => {
            let until = bench.now + Duration::from_millis(4 << (op & 15));
            for _ in 0..64 {
                if bench.wake > until {
                    break;
                }
                bench.now = bench.wake.max(bench.now);
                bench.wake = Time::NEVER;
                bench.call(|device, cx| device.timer(cx));
            }
            bench.now = bench.now.max(until);
            return;
        }
        240..=247 => return bench.closed(Failure::ALL[usize::from(op) % Failure::ALL.len()]),
        248..=253 if bench.link == Link::Connect => return bench.connected(),
        254 => return bench.stop(),
        255 => {
            bench.abandon();
            // the run is over, and what comes now comes to who leaves
            if bench.model.leaves_behind() {
                bench.link = Link::Keep;
                return bench.call(|device, cx| device.clean_up(cx));
            }
            return begin(bench);
        }
        _ => return,
    };
    let Some(message) = message else { return };
    let mut bytes = message.into_bytes();
    // a byte of it is another
    if let [at, bits, ..] = *peer.data
        && op & 7 == 7
        && !bytes.is_empty()
    {
        let at = usize::from(at) * 8 % bytes.len();
        bytes[at] ^= bits;
    }
    if over_tcp { bench.feed(&bytes) } else { bench.datagram(&bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_conversation_breaks_a_user_agent(data in prop::collection::vec(any::<u8>(), 2..1200)) {
            talk(&data);
        }
    }

    /// What a user agent keeps and what it says while `count` messages of strangers come, between two flows and in a call.
    #[test]
    fn a_flood_of_strangers_is_answered_and_not_kept() {
        for (preset, over_tcp) in [(Preset::Answer, false), (Preset::Answer, true), (Preset::Call, false)] {
            let mut bench = bench(preset, over_tcp, false).expect("a user agent");
            begin(&mut bench);
            let (mut most, mut said) = ((0, 0), 0);
            for number in 0..20_000 {
                let method = METHODS[number % METHODS.len()];
                let message = format!(
                    "{method} sip:nd00000000@10.0.0.1:40000 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.2;branch=z9hG4bK{number}\r\n\
                     From: <sip:x@y>;tag={number}\r\nTo: <sip:a@b>{}\r\nCall-ID: {number}\r\nCSeq: 1 {method}\r\n\
                     Contact: <sip:x@10.0.0.2>\r\nContent-Length: 0\r\n\r\n",
                    if number % 2 == 0 { "" } else { ";tag=gone" }
                );
                if over_tcp {
                    bench.feed(message.as_bytes())
                } else {
                    bench.datagram(message.as_bytes())
                }
                said += bench.out.bytes.len();
                bench.out.clear();
                let (entries, bytes) = bench.model.footprint();
                most = (most.0.max(entries), most.1.max(bytes));
                if bench.end.take().is_some() {
                    begin(&mut bench);
                }
            }
            assert!(most.0 <= 32 && most.1 <= 16 << 10, "{preset:?}: {most:?}");
            assert!(said > 1 << 20, "{preset:?}: they are answered");
        }
    }

    #[test]
    fn reliable_responses_without_end_are_not_all_acknowledged() {
        let mut bench = bench(Preset::EarlyMedia, false, false).expect("a user agent");
        begin(&mut bench);
        let mut peer = Peer { data: &[], heard: Vec::new() };
        peer.hear(&bench.out.bytes);
        let [via, from, to, call, cseq] =
            ["Via", "From", "To", "Call-ID", "CSeq"].map(|name| peer.field(0, name));
        for rseq in 1..1000 {
            bench.out.clear();
            bench.datagram(
                format!(
                    "SIP/2.0 183 X\r\nVia: {via}\r\nFrom: {from}\r\nTo: {to};tag=b\r\nCall-ID: {call}\r\nCSeq: {cseq}\r\n\
                     Contact: <sip:b@10.0.0.9>\r\nRequire: 100rel\r\nRSeq: {rseq}\r\nContent-Length: 0\r\n\r\n"
                )
                .as_bytes(),
            );
        }
        let (entries, _) = bench.model.footprint();
        assert!((16..=40).contains(&entries), "{entries}");
    }
}
