//! TCP/IP endpoints for very many connections, without I/O: a [`Stack`] takes frames and the time, and gives frames, events and
//! deadlines.
//!
//! ```text
//!  frame ──► Stack::receive ──► neighbours (ARP, ND), echo replies
//!                               connections ──► events ──► whoever owns them
//!  frame ◄── Stack::transmit ◄── connections with something to send
//!                               datagram sockets (UDP, ICMP echo)
//!            Stack::advance  ◄── the timer wheel: one deadline of each connection that waits for anything
//! ```
//! An idle connection is one [block](connection) of at most 256 bytes, its slot of the [table] included; buffers and the record of
//! what is in flight are lent from a pool while it needs them. Sequence numbers, retransmission and states follow RFC 9293; loss
//! is detected by RACK-TLP (RFC 8985) where the peer selects what it acknowledges, and by duplicate acknowledgments elsewhere.

mod config;
mod congestion;
mod connection;
mod cookie;
mod counters;
mod flight;
mod fragments;
mod input;
mod listening;
mod neighbours;
mod offload;
mod output;
mod packets;
mod path_mtu;
mod ports;
mod receive_buffer;
mod rtt;
mod send_buffer;
mod seq;
mod share;
mod sockets;
mod stack;
mod table;
mod timeout;
mod wire;

pub use config::{Config, CongestionControl, Network, TcpConfig};
pub use connection::{CloseReason, State};
pub use counters::{Counters, DropReason};
pub use listening::SendOutcome;
pub use offload::{Offload, Work};
pub use share::{Recipient, Share};
pub use sockets::{Arrival, DatagramError, Sent, SocketHandle, SocketKind};
pub use stack::{ConnectError, Event, Handle, Received, Stack, Status};
pub use wire::Transmit;
