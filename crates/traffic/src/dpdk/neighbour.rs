//! Being a neighbour: whose address is whose, and answers to those who ask for ours.

use dpdk::{Batch, Mempool, RxQueue, TxQueue};
use engine::{About, Cx, Element};
use packet::arp::{self, Arp, Operation};
use packet::{Layers, Mac, icmp};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// A port's own addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Station {
    /// In Ethernet.
    pub mac: Mac,
    /// In IP; unspecified: it has none, and answers nobody.
    pub ip: IpAddr,
}

impl Station {
    fn ipv4(&self) -> Option<Ipv4Addr> {
        match self.ip {
            IpAddr::V4(ip) if !ip.is_unspecified() => Some(ip),
            _ => None,
        }
    }

    /// Turn a question for this station into its answer, in place: ARP and ICMP echo. False, and nothing
    /// changed, when it is none.
    pub fn answer(&self, frame: &mut [u8]) -> bool {
        let Some(ip) = self.ipv4() else { return false };
        if let Some(asked) = Arp::parse(frame) {
            let ours = asked.operation == Operation::Request && asked.target == ip;
            return match frame.first_chunk_mut::<{ arp::FRAME }>() {
                Some(out) if ours => {
                    asked.answer(self.mac).emit(out);
                    true
                }
                _ => false,
            };
        }
        match Layers::find(frame) {
            Ok(layers) => icmp::answer(frame, &layers, ip),
            Err(_) => false,
        }
    }
}

/// Element: answers what is for its station.
#[derive(Debug)]
pub struct Neighbour(pub Station);

impl Element for Neighbour {
    fn about(&self) -> About {
        let drops = &["not_for_us", "segmented"];
        About { kind: "neighbour", takes: true, outputs: &["out"], drops, polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        cx.sift(batch, |mbuf| match mbuf.is_whole() {
            true if self.0.answer(mbuf.data_mut()) => Ok(()),
            true => Err(0),
            // Nobody asks in so many words; and the rest would go back with the answer.
            false => Err(1),
        });
    }
}

/// How often the question is asked again.
const AGAIN: Duration = Duration::from_millis(100);

/// Ask by ARP who has `target`, for at most `patience`. Answers others meanwhile, as they may ask first.
pub fn resolve(
    station: Station,
    target: Ipv4Addr,
    (rx, tx): (&mut RxQueue, &mut TxQueue),
    pool: &Mempool,
    patience: Duration,
) -> Option<Mac> {
    let begun = Instant::now();
    let mut asked: Option<Instant> = None;
    let mut batch = Batch::new();
    while begun.elapsed() < patience {
        if asked.is_none_or(|asked| asked.elapsed() >= AGAIN) {
            asked = Some(Instant::now());
            if pool.fill(&mut batch, 1) {
                let question = Arp::request(station.mac, station.ipv4()?, target);
                // The smallest frame is 60 bytes: some ports do not pad.
                if let Some(out) = batch.frames_mut().first_mut().and_then(|mbuf| mbuf.set_len(60)) {
                    out.fill(0);
                    out.first_chunk_mut().into_iter().for_each(|out| question.emit(out));
                    tx.send(&mut batch);
                }
            }
            batch.clear();
        }
        rx.receive(&mut batch);
        for mbuf in batch.frames() {
            if let Some(heard) = Arp::parse(mbuf.data()).filter(|heard| heard.sender == target) {
                return Some(heard.sender_mac);
            }
        }
        batch.retain(|mbuf| mbuf.is_whole() && station.answer(mbuf.data_mut()));
        tx.send(&mut batch);
        batch.clear();
        std::thread::sleep(Duration::from_micros(100));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATION: Station = Station { mac: [2, 0, 0, 0, 0, 7], ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7)) };

    #[test]
    fn it_answers_for_itself_only() {
        let ask = |ip: [u8; 4]| {
            let mut frame = [0u8; 60];
            let question = Arp::request([2, 0, 0, 0, 0, 1], [10, 0, 0, 1].into(), ip.into());
            question.emit(frame.first_chunk_mut().expect("it fits"));
            frame
        };
        let mut frame = ask([10, 0, 0, 7]);
        assert!(STATION.answer(&mut frame));
        let heard = Arp::parse(&frame).expect("an answer");
        assert_eq!((heard.operation, heard.sender_mac), (Operation::Reply, STATION.mac));
        assert_eq!(&frame[..6], &[2, 0, 0, 0, 0, 1]);
        assert!(!STATION.answer(&mut frame), "an answer is no question");
        let mut other = ask([10, 0, 0, 8]);
        assert!(!STATION.answer(&mut other));
        assert_eq!(other, ask([10, 0, 0, 8]));
        let nobody = Station { ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED), ..STATION };
        assert!(!nobody.answer(&mut ask([0, 0, 0, 0])));
    }
}
