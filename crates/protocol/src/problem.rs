//! What is wrong with a profile's parameters, where, and what to do about it.

/// One thing wrong with the parameters of a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {what}; {fix}")]
pub struct Problem {
    /// Path of the key, from the parameters on: `steps[2].send`.
    pub key: String,
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub fix: String,
}

impl Problem {
    /// A problem with `key`.
    pub fn new(key: impl Into<String>, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { key: key.into(), what: what.into(), fix: fix.into() }
    }

    /// The same problem, seen from one level up.
    #[must_use]
    pub fn under(mut self, parent: &str) -> Self {
        self.key = match self.key.as_bytes().first() {
            None => parent.to_owned(),
            Some(b'[') => format!("{parent}{}", self.key),
            Some(_) => format!("{parent}.{}", self.key),
        };
        self
    }

    /// Err with the problem unless `holds`.
    pub fn unless(
        holds: bool,
        key: &str,
        what: impl FnOnce() -> String,
        fix: impl Into<String>,
    ) -> Result<(), Problem> {
        if holds { Ok(()) } else { Err(Problem::new(key, what(), fix)) }
    }
}

/// The known word that `word` was probably meant to be.
pub fn closest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// No known word is longer; to compare a very long one with each takes very long.
    const LONGEST: usize = 100;
    known
        .into_iter()
        .filter(|k| word.len() <= LONGEST && k.len() <= LONGEST)
        .map(|k| (strsim::damerau_levenshtein(word, k), k))
        // one letter, or less than half of the shorter word: "frame" is not what "rate" means
        .filter(|(distance, k)| match word.len().min(k.len()) {
            0 | 1 => false,
            shorter => *distance <= 1 || 2 * distance < shorter,
        })
        .min()
        .map(|(_, k)| k)
}

/// Names to choose from, as many as one wants to read.
pub fn choices<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const MOST: usize = 10;
    const LONGEST: usize = 64;
    let mut names = names.into_iter();
    let shown: Vec<String> =
        names.by_ref().take(MOST).map(|name| name.chars().take(LONGEST).collect()).collect();
    match names.count() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_where_what_and_what_to_do() {
        let problem = Problem::new("qos", "3 is no quality of service", "use 0, 1 or 2").under("model.mqtt");
        assert_eq!(problem.to_string(), "model.mqtt.qos: 3 is no quality of service; use 0, 1 or 2");
        assert_eq!(Problem::new("[2].send", "", "").under("steps").key, "steps[2].send");
        assert_eq!(Problem::new("", "", "").under("steps").key, "steps");
    }

    #[test]
    fn a_list_of_names_ends() {
        assert_eq!(choices(["a", "b"]), "a, b");
        let names: Vec<String> = (0..500_000).map(|i| i.to_string()).collect();
        let shown = |count: usize| choices(names[..count].iter().map(String::as_str));
        assert_eq!(shown(10), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9");
        assert_eq!(shown(500_000), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 499990 more");
    }

    #[test]
    fn a_typo_is_recognised_and_a_stranger_is_not() {
        let known = ["device", "seq", "timestamp"];
        assert_eq!(closest("devcie", known), Some("device"));
        assert_eq!(closest("sequence", known), None);
        assert_eq!(closest("x", known), None);
        assert_eq!(closest("rate", ["frame", "name"]), None);
        assert_eq!(closest("vus", ["tls"]), None);
        assert_eq!(closest("tsl", ["tls"]), Some("tls"));
        // as long as a text may be: compared letter by letter it would take minutes
        assert_eq!(closest(&"device".repeat(2 << 20), [known[0], &"seq".repeat(2 << 20)]), None);
    }
}
