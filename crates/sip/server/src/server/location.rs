//! Location service: bindings of addresses of record to contacts (RFC 3261 section 10.3).

use sip_core::Uri;
use std::collections::HashMap;

const SECOND: u64 = 1_000_000_000;

/// A contact of an address of record.
#[derive(Debug, Clone)]
pub(super) struct Binding {
    pub uri: Uri,
    pub text: String,
    pub q: Option<String>,
    pub call_id: String,
    pub cseq: u32,
    /// When it ends, ns.
    pub until: u64,
}

impl Binding {
    /// Seconds left, rounded up.
    pub fn remaining_seconds(&self, now: u64) -> u64 {
        self.until.saturating_sub(now).div_ceil(SECOND)
    }
}

/// All bindings.
#[derive(Debug)]
pub(super) struct Location {
    users: HashMap<String, Vec<Binding>>,
    most: usize,
    count: usize,
}

impl Location {
    pub fn new(most: usize) -> Self {
        Self { users: HashMap::new(), most, count: 0 }
    }

    /// Bindings that were not removed.
    pub fn bindings(&self) -> u64 {
        self.count as u64
    }

    /// Whether there is no room for another binding.
    pub fn full(&self) -> bool {
        self.count >= self.most
    }

    /// Forget all bindings that have ended.
    pub fn expire(&mut self, now: u64) {
        self.users.retain(|_, bindings| {
            bindings.retain(|one| one.until > now);
            !bindings.is_empty()
        });
        self.count = self.users.values().map(Vec::len).sum();
    }

    /// The bindings of a user, without those that have ended.
    pub fn of(&mut self, user: &str, now: u64) -> &[Binding] {
        if let Some(bindings) = self.users.get_mut(user) {
            let before = bindings.len();
            bindings.retain(|one| one.until > now);
            self.count -= before - bindings.len();
        }
        self.users.get(user).map_or(&[], Vec::as_slice)
    }

    /// Remove all bindings of a user.
    pub fn clear(&mut self, user: &str) {
        self.count -= self.users.remove(user).map_or(0, |bindings| bindings.len());
    }

    /// Remove a binding.
    pub fn remove(&mut self, user: &str, uri: &Uri) {
        let Some(bindings) = self.users.get_mut(user) else { return };
        let before = bindings.len();
        bindings.retain(|one| !one.uri.equivalent(uri));
        self.count -= before - bindings.len();
    }

    /// Add a binding, or refresh it.
    pub fn add(&mut self, user: &str, binding: Binding) {
        let bindings = self.users.entry(user.to_owned()).or_default();
        match bindings.iter_mut().find(|one| one.uri.equivalent(&binding.uri)) {
            Some(known) => *known = binding,
            None => {
                bindings.push(binding);
                self.count += 1;
            }
        }
    }
}
