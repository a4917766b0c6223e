//! Integration tests of the stack.

mod chaos;
mod datagrams;
mod limits;
mod link;
mod linux;
mod lockstep;
mod nic;
mod offload;
mod packetdrill;
mod path_mtu;
mod scenarios;
mod shared;
mod transfer;
mod wire;
