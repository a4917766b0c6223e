//! The files that a profile names, but for those of its elements: `data`, certificates, keys and recordings.

use crate::Profile;
use crate::data::{Source, Tables};

impl Profile {
    /// Each with its place in the profile. Whoever opens another one adds it here: over TCP only some may be named.
    pub fn files_mut(&mut self) -> Vec<(String, &mut String)> {
        let mut found: Vec<(String, &mut String)> = match &mut self.data {
            Tables::File(file) => vec![("data".to_owned(), file)],
            Tables::Named(all) => all
                .iter_mut()
                .map(|(name, source)| match source {
                    Source::File(file) => (format!("data.{name}"), file),
                    Source::Rows(rows) => (format!("data.{name}.file"), &mut rows.file),
                })
                .collect(),
        };
        for (i, group) in self.groups.iter_mut().enumerate() {
            if let Some(tls) = &mut group.tls {
                let keys = [("ca", &mut tls.ca), ("cert", &mut tls.cert), ("key", &mut tls.key)];
                let named = keys.into_iter().filter_map(|(key, file)| Some((key, file.as_mut()?)));
                found.extend(named.map(|(key, file)| (format!("groups[{i}].tls.{key}"), file)));
            }
            if let Some(replay) = group.frame.as_mut().and_then(|frame| frame.replay.as_mut()) {
                found.push((format!("groups[{i}].frame.replay.file"), &mut replay.file));
            }
        }
        found
    }
}
