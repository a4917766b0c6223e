//! TLS of a connection, whatever carries its records: kernel sockets, or a stack. What is known of the handshake when it fails.

use crate::conn_error::ConnError;
use crate::endpoint::Input;
use protocol::meter::Failure;
use run::tls::{self, Handshake};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ProtocolVersion};
use std::io::{Read, Write};
use std::sync::Arc;

/// Cipher text taken at once. With a record that it completes it is less than the buffer of [`Session::read`] holds.
const CIPHER_MAX: usize = 16 * 1024;

/// What a connection has of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records {
    /// Nothing for now.
    Dry,
    /// So many bytes.
    Bytes(usize),
    /// The peer has closed.
    End,
}

/// A client's TLS session.
#[derive(Debug)]
pub struct Session {
    tls: ClientConnection,
    handshake: Handshake,
}

fn failed(e: impl ToString) -> ConnError {
    ConnError::new(Failure::Tls, e.to_string())
}

impl Session {
    /// A session with a server of this name, which has yet to be greeted.
    pub fn new(config: &Arc<ClientConfig>, name: &ServerName<'static>) -> Result<Self, ConnError> {
        let mut tls = ClientConnection::new(Arc::clone(config), name.clone()).map_err(failed)?;
        // what is written to the session leaves it at once: a message may be larger than its buffer
        tls.set_buffer_limit(None);
        Ok(Self { tls, handshake: Handshake::default() })
    }

    /// Whether no bytes can be exchanged yet.
    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Take plain text to send.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ConnError> {
        self.tls.writer().write_all(bytes).map_err(failed)
    }

    /// Say that nothing more will be sent.
    pub fn end(&mut self) {
        self.tls.send_close_notify();
    }

    /// Put records to send behind `out`; how many bytes.
    pub fn take_records(&mut self, out: &mut Vec<u8>) -> Result<u64, ConnError> {
        let mut taken = 0;
        while self.tls.wants_write() {
            taken += self.tls.write_tls(out).map_err(failed)? as u64;
        }
        Ok(taken)
    }

    /// Take the records that were read; `bytes` came last. How much plain text there is, and whether the peer has said that
    /// it sends no more.
    fn process(&mut self, bytes: &[u8]) -> Result<(usize, bool), ConnError> {
        let (up, waits) = (!self.tls.is_handshaking(), self.tls.wants_write());
        let _of_another = tls::requested_client_certificate();
        let done = self
            .tls
            .process_new_packets()
            .map(|state| (state.plaintext_bytes_to_read(), state.peer_has_closed()));
        let Handshake { agreed, certificate, renegotiation } = &mut self.handshake;
        *agreed |= self.tls.negotiated_cipher_suite().is_some();
        *certificate = tls::requested_client_certificate().or(*certificate);
        match &done {
            Ok((plain, _)) if *plain > 0 => *renegotiation = false,
            // after the handshake a client of TLS 1.2 has something to say only to a HelloRequest: no_renegotiation
            Ok(_) if up && self.tls.protocol_version() == Some(ProtocolVersion::TLSv1_2) => {
                *renegotiation |= !waits && self.tls.wants_write();
            }
            _ => {}
        }
        done.map_err(|e| {
            let (cause, what) = tls::failure(&e, bytes, self.handshake);
            ConnError::new(cause, what)
        })
    }

    /// The connection has ended. Whether the peer had said so is `said`.
    fn end_of_stream(&self, said: bool) -> Result<Input, ConnError> {
        let unfinished = !said && (self.tls.is_handshaking() || self.handshake.renegotiation);
        match tls::closed(self.handshake).filter(|_| unfinished) {
            Some((cause, what)) => Err(ConnError::new(cause, what)),
            None => Ok(Input::End { complete: said }),
        }
    }

    /// Read once into `buffer`; `cipher` is room for records, which `receive` puts there: how many bytes, 0 at the end.
    pub fn read(
        &mut self,
        buffer: &mut [u8],
        cipher: &mut [u8],
        mut receive: impl FnMut(&mut [u8]) -> Result<Records, ConnError>,
    ) -> Result<Input, ConnError> {
        loop {
            let shaking = self.tls.is_handshaking();
            let size = cipher.len().min(CIPHER_MAX);
            let got = match receive(&mut cipher[..size])? {
                Records::Bytes(n) => n,
                Records::End => 0,
                // the last bytes and the close_notify may have come together, and no FIN: who sent it may wait for ours
                Records::Dry => {
                    let closed = self.tls.process_new_packets().is_ok_and(|state| state.peer_has_closed());
                    return Ok(if closed { Input::End { complete: true } } else { Input::Dry });
                }
            };
            let mut records = &cipher[..got];
            let mut filled = 0;
            let mut said = false;
            loop {
                // the session holds one record's plain text at most: it is taken out before more goes in
                self.tls.read_tls(&mut records).map_err(failed)?;
                let (mut plain, closed) = self.process(&cipher[..got])?;
                said |= closed;
                while plain > 0 && filled < buffer.len() {
                    match self.tls.reader().read(&mut buffer[filled..]) {
                        Ok(n) if n > 0 => (filled, plain) = (filled + n, plain.saturating_sub(n)),
                        _ => break,
                    }
                }
                if records.is_empty() {
                    break;
                }
            }
            if filled > 0 {
                return Ok(Input::Bytes { len: filled, dry: false });
            }
            if said || got == 0 {
                return self.end_of_stream(said);
            }
            // the server's last flight may ask for no reply (RFC 5246 section 7.3), and yet the handshake is over with it
            if shaking || self.tls.wants_write() {
                return Ok(Input::Aside);
            }
        }
    }
}
