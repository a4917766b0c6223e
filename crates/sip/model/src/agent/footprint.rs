//! What a user agent keeps of what came, for tests that flood it.

use super::UserAgent;
use crate::transaction::{Client, Server};

impl UserAgent {
    /// Messages and transactions that it keeps, and their bytes.
    pub(crate) fn footprint(&self) -> (usize, usize) {
        let clients = [&self.invite, &self.request].into_iter().flatten().map(|one| client(one));
        let servers = [&self.invited, &self.requested].into_iter().flatten().map(|one| server(one));
        let past = self.past.iter().map(|one| server(one));
        let aside = self.aside.iter().map(super::legs::Leg::bytes);
        let forks = self.forks.iter().map(super::fork::Fork::bytes);
        let pracks = self.reliable.iter().flat_map(|known| known.pracks().map(client));
        let small = (self.inbox.len() + self.unacknowledged.len()) * 64;
        let sizes: Vec<usize> =
            clients.chain(servers).chain(past).chain(aside).chain(forks).chain(pracks).collect();
        let entries = sizes.len() + self.inbox.len() + self.unacknowledged.len();
        (entries, sizes.iter().sum::<usize>() + small + self.captured.iter().map(Vec::len).sum::<usize>())
    }
}

pub(super) fn client(one: &Client) -> usize {
    one.bytes.len() + 8 * one.answered.len()
}

pub(super) fn server(one: &Server) -> usize {
    one.head.len() + one.bindings.len() + one.response.len()
}
