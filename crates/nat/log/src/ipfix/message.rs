//! One message under construction (RFC 7011 section 3): a header, then sets.

/// Version, length, export time, sequence number, observation domain.
const HEADER: usize = 16;
/// Id and length.
const SET_HEADER: usize = 4;

#[derive(Debug)]
pub(super) struct Message {
    bytes: Vec<u8>,
    max: usize,
    /// The set that is open, and where it begins.
    set: Option<(u16, usize)>,
    /// Data records so far.
    pub records: u32,
    /// Events among them.
    pub events: u32,
}

impl Message {
    pub fn new(max: usize) -> Self {
        let mut bytes = Vec::with_capacity(max);
        bytes.resize(HEADER, 0);
        Self { bytes, max, set: None, records: 0, events: 0 }
    }

    pub fn clear(&mut self) {
        self.bytes.truncate(HEADER);
        self.set = None;
        self.records = 0;
        self.events = 0;
    }

    /// Whether `len` bytes more in this set are not too many.
    pub fn fits(&self, set: u16, len: usize) -> bool {
        let header = if self.is_open(set) { 0 } else { SET_HEADER };
        self.bytes.len() + header + len <= self.max
    }

    /// Where the set's next record goes.
    pub fn body(&mut self, set: u16) -> &mut Vec<u8> {
        if !self.is_open(set) {
            self.close_set();
            self.set = Some((set, self.bytes.len()));
            self.bytes.extend_from_slice(&set.to_be_bytes());
            self.bytes.extend_from_slice(&[0; 2]);
        }
        &mut self.bytes
    }

    /// The whole message, if there is anything in it.
    pub fn finish(&mut self, now_ms: u64, sequence: u32, domain: u32) -> Option<&[u8]> {
        self.close_set();
        if self.bytes.len() == HEADER {
            return None;
        }
        let seconds = (now_ms / 1000) as u32; // until 2106, as the field is
        let mut header = [0; HEADER];
        header[..2].copy_from_slice(&10u16.to_be_bytes());
        header[2..4].copy_from_slice(&(self.bytes.len() as u16).to_be_bytes());
        header[4..8].copy_from_slice(&seconds.to_be_bytes());
        header[8..12].copy_from_slice(&sequence.to_be_bytes());
        header[12..].copy_from_slice(&domain.to_be_bytes());
        self.bytes[..HEADER].copy_from_slice(&header);
        Some(&self.bytes)
    }

    fn is_open(&self, set: u16) -> bool {
        self.set.is_some_and(|(id, _)| id == set)
    }

    fn close_set(&mut self) {
        if let Some((_, start)) = self.set.take() {
            let len = (self.bytes.len() - start) as u16;
            self.bytes[start + 2..start + 4].copy_from_slice(&len.to_be_bytes());
        }
    }
}
