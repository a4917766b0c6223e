//! Integration tests of the stack.

mod chaos;
mod link;
mod linux;
mod scenarios;
mod transfer;
