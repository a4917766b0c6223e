//! Dialogs of calls that ring or are up: a request within any other is answered with 481 (RFC 3261 section 12.2.2).

use crate::echo::Dialog;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Dialogs that are remembered at the least; of callers that never hung up the oldest are forgotten.
const ROOM: usize = 500_000;

/// Two generations of hashes, with the highest CSeq of the caller's requests: when the younger is full it becomes the older.
#[derive(Debug, Default)]
pub(super) struct Dialogs {
    younger: HashMap<u64, u32>,
    older: HashMap<u64, u32>,
    hasher: RandomState,
}

impl Dialogs {
    pub fn begin(&mut self, dialog: &Dialog) {
        let hash = self.hasher.hash_one(dialog);
        if self.older.contains_key(&hash) || self.younger.contains_key(&hash) {
            return;
        }
        if self.younger.len() >= ROOM {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(hash, 0);
    }

    pub fn has(&self, dialog: &Dialog) -> bool {
        let hash = self.hasher.hash_one(dialog);
        self.younger.contains_key(&hash) || self.older.contains_key(&hash)
    }

    /// Whether a request is in its turn: its CSeq is not lower than one before (section 12.2.2).
    pub fn in_turn(&mut self, dialog: &Dialog, cseq: u32) -> bool {
        let hash = self.hasher.hash_one(dialog);
        let known = self.younger.get_mut(&hash).or_else(|| self.older.get_mut(&hash));
        known.is_none_or(|last| {
            let fine = cseq >= *last;
            *last = cseq.max(*last);
            fine
        })
    }

    /// Whether there was such a dialog, which is over now.
    pub fn end(&mut self, dialog: &Dialog) -> bool {
        let hash = self.hasher.hash_one(dialog);
        self.younger.remove(&hash).or_else(|| self.older.remove(&hash)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialog(number: usize) -> Dialog {
        Dialog { call: number.to_string(), theirs: "t".into(), ours: "o".into() }
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut dialogs = Dialogs::default();
        (0..=2 * ROOM).for_each(|number| dialogs.begin(&dialog(number)));
        assert!(
            !dialogs.has(&dialog(ROOM - 1)) && dialogs.has(&dialog(ROOM)) && dialogs.has(&dialog(2 * ROOM))
        );
        assert!(dialogs.end(&dialog(ROOM)) && !dialogs.end(&dialog(ROOM)));
    }
}
