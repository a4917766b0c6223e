//! A device's connection as its worker keeps it.

use crate::conn_error::ConnError;
use protocol::meter::Failure;

/// What a server may make us keep of an unfinished message before we call it malformed.
const SPILL_MAX: usize = 1 << 20;

/// The endpoint's connection, and how far the device is with it.
#[derive(Debug)]
pub(super) struct Conn<C> {
    pub inner: C,
    /// Whether the model has been told that it is up.
    pub up: bool,
    /// Whether it closes once all is sent.
    pub closing: bool,
    /// Whether the peer has said that it sends no more: it is read on until that shows.
    pub ended: bool,
    /// Whether the worker reads on from it in its next turn anyway.
    pub unread: bool,
    /// Received bytes that the model has not used.
    spill: Vec<u8>,
}

impl<C> Conn<C> {
    /// It was opened now; `up`: there is no handshake to wait for.
    pub fn new(inner: C, up: bool) -> Self {
        Self { inner, up, closing: false, ended: false, unread: false, spill: Vec::new() }
    }

    /// Take the spill out, so that the model can be shown it while it may change the connection.
    pub fn take_spill(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.spill)
    }

    /// Keep `rest` until more comes.
    pub fn keep(&mut self, rest: Vec<u8>) -> Result<(), ConnError> {
        if rest.len() > SPILL_MAX {
            let what = format!("an unfinished message of over {SPILL_MAX} bytes");
            return Err(ConnError::new(Failure::Protocol, what));
        }
        self.spill = rest;
        Ok(())
    }
}
