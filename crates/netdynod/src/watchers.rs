//! Those who watch: each gets every notification, in order, and holds nobody back.

use crate::outbox::Outbox;
use crate::session::Session;
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use system::rpc::{self, Error, TOO_MANY};

/// Subscriptions that one connection may have.
pub const SUBSCRIPTIONS: usize = 16;

/// One subscription.
struct Watcher {
    session: Session,
    number: u64,
    outbox: Arc<Outbox>,
}

/// All subscriptions.
#[derive(Default)]
pub struct Watchers(Mutex<(u64, Vec<Watcher>)>);

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, (u64, Vec<Watcher>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Send `session` what happens from now on. Gives the subscription's number.
    pub fn add(&self, session: Session, outbox: &Arc<Outbox>) -> Result<u64, Error> {
        let (last, watchers) = &mut *self.lock();
        if watchers.iter().filter(|w| w.session == session).count() >= SUBSCRIPTIONS {
            return Err(Error::new(
                TOO_MANY,
                "ND-104-15",
                "stats.subscribe",
                format!("this connection has {SUBSCRIPTIONS} subscriptions already"),
                "End one with stats.unsubscribe; one subscription gets everything",
            ));
        }
        *last += 1;
        watchers.push(Watcher { session, number: *last, outbox: Arc::clone(outbox) });
        Ok(*last)
    }

    /// No longer. False when `session` has no such subscription.
    pub fn remove(&self, session: Session, number: u64) -> bool {
        let (_, watchers) = &mut *self.lock();
        let before = watchers.len();
        watchers.retain(|w| (w.session, w.number) != (session, number));
        watchers.len() < before
    }

    /// The connection has gone.
    pub fn forget(&self, session: Session) {
        self.lock().1.retain(|w| w.session != session);
    }

    /// Tell all.
    pub fn publish(&self, method: &str, params: &impl Serialize) {
        let (_, watchers) = &mut *self.lock();
        if watchers.is_empty() {
            return;
        }
        let line: Arc<str> = rpc::notification(method, params).into();
        watchers.retain(|w| {
            let kept = w.outbox.tell(&line);
            if !kept {
                tracing::warn!(session = w.session, "hung up on a viewer who does not read");
            }
            kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(outbox: &Outbox) -> Vec<String> {
        outbox.end();
        std::iter::from_fn(|| outbox.next()).map(|line| line.to_string()).collect()
    }

    #[test]
    fn each_gets_what_comes_while_it_watches() {
        let watchers = Watchers::default();
        let [one, two] = [(); 2].map(|()| Arc::new(Outbox::new(|| {})));
        watchers.publish("x", &json!(0));
        let first = watchers.add(1, &one).unwrap();
        watchers.publish("x", &json!(1));
        let second = watchers.add(2, &two).unwrap();
        watchers.publish("x", &json!(2));
        assert!(!watchers.remove(2, first), "not its own");
        assert!(watchers.remove(1, first) && !watchers.remove(1, first));
        watchers.publish("x", &json!(3));
        watchers.forget(2);
        assert!(!watchers.remove(2, second));
        watchers.publish("x", &json!(4));
        let line = |n: u64| format!("{{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":{n}}}\n");
        assert_eq!(said(&one), [line(1), line(2)]);
        assert_eq!(said(&two), [line(2), line(3)]);
    }

    #[test]
    fn a_connection_has_so_many_subscriptions_and_no_more() {
        let watchers = Watchers::default();
        let outbox = Arc::new(Outbox::new(|| {}));
        let numbers: Vec<u64> = (0..SUBSCRIPTIONS).map(|_| watchers.add(1, &outbox).unwrap()).collect();
        assert_eq!(watchers.add(1, &outbox).unwrap_err().code, TOO_MANY);
        watchers.add(2, &outbox).unwrap();
        assert!(watchers.remove(1, numbers[3]));
        watchers.add(1, &outbox).unwrap();
    }
}
