//! Integration tests of the stack.

mod link;
mod linux;
mod scenarios;
mod transfer;
