//! Integration tests of the stack.

mod chaos;
mod datagrams;
mod link;
mod linux;
mod scenarios;
mod shared;
mod transfer;
