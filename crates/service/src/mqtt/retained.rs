//! Retained messages (section 3.3.1.3): the latest of a topic, for those who subscribe later.

use super::client::Message;
use super::subscriptions::matches;
use protocol::mqtt::wire::Publish;
use std::collections::HashMap;
use std::sync::Arc;

/// Topics with a message, at most.
const TOPICS: usize = 100_000;

/// The latest message of each topic.
#[derive(Debug, Default)]
pub(super) struct Retained(HashMap<Box<str>, Arc<Message>>);

impl Retained {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Keep it if it is to be kept; an empty one removes the one before.
    pub fn keep(&mut self, publish: &Publish<'_>) {
        if !publish.retain {
            return;
        }
        if publish.payload.is_empty() {
            self.0.remove(publish.topic);
        } else if self.0.len() < TOPICS || self.0.contains_key(publish.topic) {
            self.0.insert(publish.topic.into(), Arc::new(Message::of(publish)));
        }
    }

    pub fn matching(&self, filter: &str) -> Vec<Arc<Message>> {
        let found = self.0.iter().filter(|(topic, _)| matches(filter, topic));
        found.map(|(_, message)| Arc::clone(message)).collect()
    }
}
