//! What a user agent keeps of what came, for tests that flood it.

use super::UserAgent;
use crate::transaction::{Client, Server};

impl UserAgent {
    /// Messages and transactions that it keeps, and their bytes.
    pub(crate) fn footprint(&self) -> (usize, usize) {
        let of_dialogs = self
            .dialogs
            .all()
            .iter()
            .flat_map(|state| state.clients().map(client).chain(state.servers().map(server)));
        let past = self.past.iter().map(|one| server(one));
        let forks = self.forks.iter().map(super::fork::Fork::bytes);
        let pracks = self.reliable.iter().flat_map(|known| known.pracks().map(client));
        let small = (self.inbox.len() + self.unacknowledged.len() + self.bindings.len()) * 64;
        let sizes: Vec<usize> = of_dialogs.chain(past).chain(forks).chain(pracks).collect();
        let entries = sizes.len() + self.inbox.len() + self.unacknowledged.len() + self.bindings.len();
        (entries, sizes.iter().sum::<usize>() + small + self.captured.iter().map(Vec::len).sum::<usize>())
    }
}

pub(super) fn client(one: &Client) -> usize {
    one.bytes.len() + 8 * one.answered.len()
}

pub(super) fn server(one: &Server) -> usize {
    one.head.len() + one.bindings.len() + one.response.len()
}
