//! The body of a request, which is read and dropped (RFC 9112 sections 6 and 7).

/// Longest line of a chunk's size or of a trailer, bytes.
const LINE_MAX: usize = 8 << 10;

/// What is left of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// So many bytes.
    Bytes(u64),
    /// The line with the next chunk's size comes.
    Size,
    /// So many bytes of a chunk, and the end of its line.
    Chunk(u64),
    /// Trailers come, and an empty line.
    Trailers,
    /// Nothing.
    Over,
}

/// No such body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MalformedBody;

impl Body {
    pub fn bytes(length: u64) -> Self {
        if length == 0 { Body::Over } else { Body::Bytes(length) }
    }

    pub fn chunks() -> Self {
        Body::Size
    }

    pub fn is_over(&self) -> bool {
        *self == Body::Over
    }

    /// Drop what belongs to the body. How many bytes; fewer than there are: the rest is something else, or has not come whole.
    pub fn skip(&mut self, bytes: &[u8]) -> Result<usize, MalformedBody> {
        let mut used = 0;
        while !self.is_over() {
            match self.step(&bytes[used..])? {
                0 => break,
                length => used += length,
            }
        }
        Ok(used)
    }

    fn step(&mut self, bytes: &[u8]) -> Result<usize, MalformedBody> {
        match *self {
            Body::Over => Ok(0),
            Body::Bytes(left) => {
                let length = left.min(bytes.len() as u64);
                *self = Body::bytes(left - length);
                Ok(length as usize)
            }
            Body::Size => match httparse::parse_chunk_size(bytes) {
                Ok(httparse::Status::Complete((length, size))) => {
                    *self = if size == 0 { Body::Trailers } else { Body::Chunk(size.saturating_add(2)) };
                    Ok(length)
                }
                Ok(httparse::Status::Partial) if bytes.len() <= LINE_MAX => Ok(0),
                _ => Err(MalformedBody),
            },
            Body::Chunk(left) => {
                let length = left.min(bytes.len() as u64);
                for at in left.saturating_sub(2)..length {
                    let wanted = if left - at == 2 { b'\r' } else { b'\n' };
                    if bytes[at as usize] != wanted {
                        return Err(MalformedBody);
                    }
                }
                *self = if left == length { Body::Size } else { Body::Chunk(left - length) };
                Ok(length as usize)
            }
            Body::Trailers => match bytes.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    if matches!(&bytes[..=end], b"\n" | b"\r\n") {
                        *self = Body::Over;
                    }
                    Ok(end + 1)
                }
                None if bytes.len() <= LINE_MAX => Ok(0),
                None => Err(MalformedBody),
            },
        }
    }
}
