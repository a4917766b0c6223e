//! Audio of calls without I/O: what a call sends, what it hears, and how good that is.
//!
//! ```text
//!  Clip (tone, WAV, raw, pcap) ─► Session ─► RTP every 20 ms, RTCP (rtcp)
//!                                   │
//!            RTP, RTCP received ─►  ├─ Stream: sequence, jitter, playout buffer (RFC 3550)
//!                                   └─ LossPattern: bursts and gaps (RFC 3611), Markov chain
//!                                          │
//!                                          ▼
//!                                   e_model: R and MOS (ITU-T G.107)
//! ```

mod clip;
pub mod e_model;
pub mod g711;
mod keys;
mod loss_pattern;
mod rtcp;
mod session;
pub mod srtp;
mod stream;

pub use clip::{Clip, ClipError, PCAP_MAX};
pub use g711::Law;
pub use keys::{KEYS_MAX, key_event};
pub use loss_pattern::LossPattern;
pub use rtcp::{PeerReport, Reports};
pub use session::{Agreed, Config, Mode, PTIME, PeerView, Quality, Session, Summary};
pub use stream::{Arrival, Stream};
