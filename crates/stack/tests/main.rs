//! Integration tests of the stack.

mod chaos;
mod datagrams;
mod link;
mod linux;
mod lockstep;
mod scenarios;
mod shared;
mod transfer;
mod wire;
