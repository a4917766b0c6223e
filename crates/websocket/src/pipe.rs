//! The bytes of one connection, as a stream that never waits.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Result, Write};

/// What came and was not read yet, and what is to be sent.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    pub came: VecDeque<u8>,
    pub out: Vec<u8>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        // its end is told apart from a pause by whoever owns the connection
        if self.came.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { self.came.read(buffer) }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
