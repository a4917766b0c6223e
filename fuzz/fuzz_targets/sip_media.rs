//! Whatever comes to the media sockets of a call does no harm, and counts agree; captures and WAV files are read or refused.
#![no_main]

use protocol::media::{Channel, MediaOutbox, MediaPacket};
use protocol::time::Time;
use sip_media::srtp::{Keys, Suite};
use sip_media::{Agreed, Clip, Config, Law, Mode, PTIME, Session};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let _ = (Clip::wav(rest), Clip::pcap(rest), Clip::raw(rest, Law::A));
    let mode = [Mode::SendReceive, Mode::Echo, Mode::SendOnly, Mode::ReceiveOnly][usize::from(choice & 3)];
    let config = Config {
        clip: Clip::tone(440, -10.0),
        mode,
        buffer: Duration::from_millis(60),
        concealment: false,
        reports: Some(Duration::from_secs(1)),
        keys: vec![1, 11],
        srtp: choice & 8 != 0,
    };
    let mut session = Session::new(Arc::new(config), choice.into(), None);
    let peer = SocketAddr::from(([192, 0, 2, 1], 4000));
    let agreed = Agreed {
        rtp: peer,
        rtcp: peer,
        law: Law::Mu,
        payload_type: 0,
        events: (choice & 4 != 0).then_some(101),
        ptime: PTIME,
        send: true,
        receive: true,
    };
    let suite = Suite::ALL[usize::from(choice >> 4) % Suite::ALL.len()];
    let key = vec![7; suite.key_length()];
    let keys = Keys { suite, local: key.clone(), remote: key };
    session.agree(agreed, (choice & 8 != 0).then_some(keys), Time::ZERO);
    session.begin(Time::ZERO);
    let mut now = Time::ZERO;
    while let [op, length, more @ ..] = rest {
        now = now + Duration::from_millis(u64::from(*op >> 1));
        let (bytes, behind) = more.split_at(more.len().min(usize::from(*length)));
        rest = behind;
        let mut out = MediaOutbox::default();
        let channel = Channel::ALL[usize::from(op & 1)];
        session.receive(&MediaPacket { channel, from: peer, at: now, bytes }, &mut out);
        session.send(now, &mut out, |_| {});
    }
    let summary = session.summary(now).expect("a call with audio");
    // of several streams, and of one that begins anew, packets may be in no pattern yet
    assert!(summary.pattern.lost <= summary.pattern.packets);
    assert!(summary.quality.is_none() || summary.heard);
});
