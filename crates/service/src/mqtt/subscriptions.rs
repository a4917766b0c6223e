//! Subscriptions by filter (section 4.7), and who gets a message.

use std::collections::HashMap;

/// A client's subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subscription {
    pub client: u32,
    pub qos: u8,
    /// Not for messages of the client itself.
    pub no_local: bool,
    /// Its messages say whether they were published to be retained (section 3.8.3.1).
    pub retain_as_published: bool,
}

/// All subscriptions.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    exact: HashMap<Box<str>, Vec<Subscription>>,
    /// Filters with wildcards.
    patterns: HashMap<Box<str>, Vec<Subscription>>,
}

/// Whether it is a filter (section 4.7.1): `#` last, wildcards alone in their level.
pub(super) fn is_filter(text: &str) -> bool {
    let mut levels = text.split('/').peekable();
    let mut good = !text.is_empty() && !text.contains('\0');
    while let Some(level) = levels.next() {
        good &= match level {
            "#" => levels.peek().is_none(),
            "+" => true,
            other => !other.contains(['#', '+']),
        };
    }
    good
}

/// Whether a topic matches a filter. Topics with a leading `$` match no leading wildcard (section 4.7.2).
pub(super) fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut levels = topic.split('/');
    for wanted in filter.split('/') {
        match (wanted, levels.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (wanted, Some(level)) if wanted == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

impl Subscriptions {
    fn of(&mut self, filter: &str) -> &mut HashMap<Box<str>, Vec<Subscription>> {
        if filter.contains(['#', '+']) { &mut self.patterns } else { &mut self.exact }
    }

    /// Add or replace; whether it is new.
    pub fn add(&mut self, filter: &str, new: Subscription) -> bool {
        let all = self.of(filter);
        let those = match all.get_mut(filter) {
            Some(those) => those,
            None => all.entry(filter.into()).or_default(),
        };
        match those.iter_mut().find(|one| one.client == new.client) {
            Some(one) => {
                *one = new;
                false
            }
            None => {
                those.push(new);
                true
            }
        }
    }

    /// Remove; whether it was there.
    pub fn remove(&mut self, filter: &str, client: u32) -> bool {
        let all = self.of(filter);
        let Some(those) = all.get_mut(filter) else { return false };
        let Some(at) = those.iter().position(|one| one.client == client) else { return false };
        those.swap_remove(at);
        if those.is_empty() {
            all.remove(filter);
        }
        true
    }

    /// Those that a message concerns, each client once, with its highest QoS.
    pub fn matching(&self, topic: &str, from: Option<u32>, found: &mut Vec<Subscription>) {
        found.clear();
        found.extend(self.exact.get(topic).into_iter().flatten());
        for (filter, those) in &self.patterns {
            if matches(filter, topic) {
                found.extend(those);
            }
        }
        found.retain(|one| !one.no_local || from != Some(one.client));
        if found.len() > 1 {
            found.sort_unstable_by_key(|one| (one.client, std::cmp::Reverse(one.qos)));
            found.dedup_by_key(|one| one.client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_the_standard() {
        for (filter, topic, wanted) in [
            ("sport/tennis/player1/#", "sport/tennis/player1", true),
            ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true),
            ("sport/#", "sport", true),
            ("#", "sport/tennis", true),
            ("sport/tennis/+", "sport/tennis/player1", true),
            ("sport/tennis/+", "sport/tennis/player1/ranking", false),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("#", "$SYS/x", false),
            ("+/x", "$SYS/x", false),
            ("$SYS/#", "$SYS/x", true),
            ("a/b", "a/b/c", false),
        ] {
            assert_eq!(matches(filter, topic), wanted, "{filter} {topic}");
        }
        for (text, wanted) in
            [("#", true), ("a/#", true), ("a#", false), ("#/a", false), ("+a", false), ("", false)]
        {
            assert_eq!(is_filter(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_client_gets_a_message_once_with_its_highest_qos() {
        let mut all = Subscriptions::default();
        let of = |client, qos| Subscription { client, qos, no_local: false, retain_as_published: false };
        assert!(all.add("a/b", of(1, 0)) && all.add("a/+", of(1, 2)) && all.add("#", of(2, 1)));
        assert!(!all.add("#", of(2, 0)));
        let mut found = Vec::new();
        all.matching("a/b", None, &mut found);
        assert_eq!(found, [of(1, 2), of(2, 0)]);
        assert!(all.remove("a/+", 1) && !all.remove("a/+", 1));
        all.matching("a/b", None, &mut found);
        assert_eq!(found, [of(1, 0), of(2, 0)]);
    }
}
