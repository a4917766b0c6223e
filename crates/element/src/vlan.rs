//! VLAN tags taken off, renumbered and put on: 802.1Q, and 802.1ad (QinQ).

use crate::kind::{Build, ElementKind};
use dpdk::{Batch, Mbuf};
use engine::{Cx, Element, ElementInfo};
use packet::ethernet::{self, TAG, kind};
use profile::Error as SetupError;
use protocol::problem::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// It has fewer tags than are to be taken off, or none to be renumbered.
const UNTAGGED: usize = 0;
/// It ends within its Ethernet header.
const TRUNCATED: usize = 1;
/// There is no room before it for a tag, or no memory for a copy of what it shares.
const NO_ROOM: usize = 2;
/// Its outer VLAN is in no list of those to be renumbered.
const UNKNOWN_VLAN: usize = 3;

/// Changes the VLAN tags of packets: first the outer one is renumbered (`rewrite`), then tags are taken off (`pop`), then put on
/// (`push`). A gateway between VLANs, and between 802.1Q and QinQ (802.1ad).
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// New numbers of outer tags, by their old ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rewrite: BTreeMap<u16, u16>,
    /// Drop packets whose outer VLAN `rewrite` does not name, as `unknown_vlan`. Default false: they pass as they are.
    #[serde(default)]
    pub strict: bool,
    /// Tags to take off, the outer one first: 0 to 2. Default 0.
    #[serde(default)]
    #[schemars(range(max = 2))]
    pub pop: u8,
    /// Tags to put on, the outermost first; at most 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub push: Vec<Tag>,
}

/// A tag to put on.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tag {
    /// The VLAN, 0 to 4095.
    #[schemars(range(max = 4095))]
    pub id: u16,
    /// Priority (PCP), 0 to 7. Default: that of the outer tag before, if there was one, else 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 7))]
    pub priority: Option<u8>,
    /// What the tag is: `c` for 802.1Q (0x8100), `s` for the service tag of 802.1ad (0x88a8). Default: `s` with another tag
    /// inside, else `c`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpid: Option<Tpid>,
}

/// Which tag it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tpid {
    /// Customer tag, 802.1Q: 0x8100.
    C,
    /// Service tag, 802.1ad: 0x88a8.
    S,
}

impl Tpid {
    fn value(self) -> u16 {
        match self {
            Self::C => kind::VLAN,
            Self::S => kind::QINQ,
        }
    }
}

impl ElementKind for Options {
    const KIND: &'static str = "vlan";
    const DROPS: &'static [&'static str] = &["untagged", "truncated", "no_room", "unknown_vlan"];
    const REPLICABLE: bool = true;
    const EXAMPLE: &'static str = r#"{"rewrite": {"100": 200}, "push": [{"id": 10, "priority": 5}]}"#;

    fn check(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut add = |key: String, what: String, fix: &str| problems.push(Problem::new(key, what, fix));
        if self.rewrite.is_empty() && self.pop == 0 && self.push.is_empty() {
            add("pop".into(), "nothing is to be done".into(), "Give rewrite, pop or push");
        }
        for (old, new) in &self.rewrite {
            if *old > 4095 || *new > 4095 {
                add(
                    format!("rewrite.{old}"),
                    format!("{old} to {new}: there are no such VLANs"),
                    "Use 0 to 4095",
                );
            }
        }
        if self.strict && self.rewrite.is_empty() {
            add("strict".into(), "no VLAN is to be renumbered".into(), "Give rewrite, or leave it out");
        }
        if self.pop > 2 {
            add("pop".into(), format!("{} tags are more than are looked for", self.pop), "Use 0, 1 or 2");
        }
        if self.push.len() > 2 {
            add("push".into(), format!("{} tags are too many", self.push.len()), "Use at most 2");
        }
        for (i, tag) in self.push.iter().enumerate() {
            if tag.id > 4095 {
                add(format!("push[{i}].id"), format!("{} is no VLAN", tag.id), "Use 0 to 4095");
            }
            if tag.priority.is_some_and(|priority| priority > 7) {
                add(format!("push[{i}].priority"), "there is no such priority".into(), "Use 0 to 7");
            }
        }
        problems
    }

    fn build(&self, _: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        Ok(Box::new(Vlan::new(self)))
    }
}

/// Element: changes tags.
#[derive(Debug)]
pub struct Vlan {
    /// New numbers by old ones, with nothing where a number stays.
    rewrite: Option<Box<[Option<u16>; 4096]>>,
    strict: bool,
    pop: usize,
    push: Vec<Tag>,
}

/// A tag's bytes: what it is, and its control information.
type TagBytes = [u8; TAG];

/// What a frame's tags become.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Changed {
    tags: [TagBytes; 4],
    /// How many of `tags` there are.
    count: usize,
    /// How many tags there were.
    before: usize,
}

impl Vlan {
    fn new(options: &Options) -> Self {
        let mut table = Box::new([None; 4096]);
        for (old, new) in &options.rewrite {
            if let Some(place) = table.get_mut(usize::from(*old)) {
                *place = Some(new & 0x0fff);
            }
        }
        let rewrite = (!options.rewrite.is_empty()).then_some(table);
        Self { rewrite, strict: options.strict, pop: options.pop.into(), push: options.push.clone() }
    }

    /// The tags that a frame is to have.
    #[inline]
    fn changed(&self, frame: &[u8]) -> Result<Changed, usize> {
        let (_, end) = ethernet::payload(frame).ok_or(TRUNCATED)?;
        let before = (end - ethernet::LEN) / TAG;
        let mut old = [TagBytes::default(); 2];
        for (i, tag) in old.iter_mut().enumerate().take(before) {
            let at = ethernet::LEN - 2 + i * TAG;
            *tag = *frame.get(at..).and_then(|rest| rest.first_chunk()).ok_or(TRUNCATED)?;
        }
        if let Some(table) = &self.rewrite {
            if before == 0 {
                return Err(UNTAGGED);
            }
            let control = u16::from_be_bytes([old[0][2], old[0][3]]);
            match table[usize::from(control & 0x0fff)] {
                Some(id) => old[0][2..].copy_from_slice(&(control & 0xf000 | id).to_be_bytes()),
                None if self.strict => return Err(UNKNOWN_VLAN),
                None => {}
            }
        }
        if before < self.pop {
            return Err(UNTAGGED);
        }
        let priority = if before > 0 { old[0][2] >> 5 } else { 0 };
        let left = &old[self.pop..before];
        let mut changed = Changed { before, ..Changed::default() };
        for (i, tag) in self.push.iter().enumerate() {
            let inside = i + 1 < self.push.len() || !left.is_empty();
            let kind = tag.tpid.unwrap_or(if inside { Tpid::S } else { Tpid::C }).value();
            let control = u16::from(tag.priority.unwrap_or(priority)) << 13 | tag.id;
            let value = u32::from(kind) << 16 | u32::from(control);
            changed.tags[i] = value.to_be_bytes();
        }
        let pushed = self.push.len().min(2);
        changed.tags[pushed..pushed + left.len()].copy_from_slice(left);
        changed.count = pushed + left.len();
        Ok(changed)
    }

    /// Change the packet's tags. What a parser found out about it stays with it.
    #[inline]
    fn apply(&self, mbuf: &mut Mbuf) -> Result<(), usize> {
        let changed = self.changed(mbuf.data())?;
        let meta = mbuf.meta();
        let mut addresses = [0; 12];
        addresses.copy_from_slice(mbuf.data().get(..12).ok_or(TRUNCATED)?);
        let fits = match changed.before.checked_sub(changed.count) {
            Some(fewer) => mbuf.adjust(fewer * TAG),
            None => mbuf.prepend((changed.count - changed.before) * TAG).is_some(),
        };
        let tags = &changed.tags[..changed.count];
        let header = mbuf.data_mut().get_mut(..12 + tags.len() * TAG).filter(|_| fits).ok_or(NO_ROOM)?;
        header[..12].copy_from_slice(&addresses);
        header[12..].copy_from_slice(tags.as_flattened());
        if let Some(mut meta) = meta {
            let moved =
                |at: u16| (at + (changed.count * TAG) as u16).wrapping_sub((changed.before * TAG) as u16);
            (meta.l3, meta.l4, meta.end) = (moved(meta.l3), moved(meta.l4), moved(meta.end));
            // Parsers look at two tags at most: behind a third one nothing is where they would find it.
            if changed.count > meta.tags.len() {
                mbuf.clear_meta();
                return Ok(());
            }
            let control = |i: usize| tags.get(i).map_or(0, |tag| u16::from_be_bytes([tag[2], tag[3]]));
            (meta.tags, meta.tagged) = ([control(0), control(1)], changed.count as u8);
            mbuf.set_meta(meta);
        }
        Ok(())
    }
}

impl Element for Vlan {
    fn about(&self) -> ElementInfo {
        ElementInfo {
            kind: Options::KIND,
            takes: true,
            outputs: &["out"],
            drops: Options::DROPS,
            polled: false,
        }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        cx.drop_rejected(batch, |mbuf| self.apply(mbuf));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::ethernet::Tags;
    use serde_json::{Value, from_value, json};

    fn frame(vlans: &[u16]) -> Vec<u8> {
        let mut frame = [&[2; 6][..], &[4; 6], &[8, 0], &[7; 46]].concat();
        frame.splice(12..12, Tags::vlans(vlans).expect("at most two").bytes().iter().copied());
        frame
    }

    fn tags(options: Value, frame: &[u8]) -> Result<Vec<TagBytes>, &'static str> {
        let options: Options = from_value(options).expect("options");
        assert!(options.check().is_empty());
        let changed = Vlan::new(&options).changed(frame).map_err(|why| Options::DROPS[why])?;
        Ok(changed.tags[..changed.count].to_vec())
    }

    #[test]
    fn tags_are_renumbered_taken_off_and_put_on() {
        let c = |id: u8| [0x81, 0, 0, id];
        let s = |id: u8| [0x88, 0xa8, 0, id];
        for (options, vlans, after) in [
            (json!({"push": [{"id": 5}]}), &[][..], Ok(vec![c(5)])),
            (json!({"push": [{"id": 5}]}), &[7], Ok(vec![s(5), c(7)])),
            (json!({"push": [{"id": 5}, {"id": 6}]}), &[], Ok(vec![s(5), c(6)])),
            (json!({"push": [{"id": 5, "tpid": "c"}]}), &[7], Ok(vec![c(5), c(7)])),
            (json!({"pop": 1}), &[7], Ok(vec![])),
            (json!({"pop": 1}), &[7, 8], Ok(vec![c(8)])),
            (json!({"pop": 2}), &[7, 8], Ok(vec![])),
            (json!({"pop": 2}), &[7], Err("untagged")),
            (json!({"rewrite": {"7": 9}}), &[7, 8], Ok(vec![s(9), c(8)])),
            (json!({"rewrite": {"7": 9}}), &[8], Ok(vec![c(8)])),
            (json!({"rewrite": {"7": 9}}), &[], Err("untagged")),
            (json!({"rewrite": {"7": 9}, "strict": true}), &[8], Err("unknown_vlan")),
            (json!({"rewrite": {"7": 9}, "pop": 1, "push": [{"id": 1}]}), &[7], Ok(vec![c(1)])),
            (json!({"push": [{"id": 1}, {"id": 2}]}), &[7, 8], Ok(vec![s(1), s(2), s(7), c(8)])),
        ] {
            assert_eq!(tags(options.clone(), &frame(vlans)), after, "{options} {vlans:?}");
        }
    }

    #[test]
    fn priorities_are_kept_unless_others_are_asked_for() {
        let mut tagged = frame(&[7]);
        tagged[14] |= 0xa0;
        let first = |options: Value| tags(options, &tagged).expect("tags")[0][2];
        assert_eq!(first(json!({"push": [{"id": 5}]})), 0xa0);
        assert_eq!(first(json!({"push": [{"id": 5, "priority": 1}]})), 0x20);
        assert_eq!(first(json!({"rewrite": {"7": 9}})), 0xa0);
    }

    #[test]
    fn what_is_cut_is_named_and_wrong_options_too() {
        assert_eq!(tags(json!({"pop": 1}), &frame(&[7])[..15]), Err("truncated"));
        assert_eq!(tags(json!({"pop": 1}), &[]), Err("truncated"));
        for (options, key) in [
            (json!({}), "pop"),
            (json!({"pop": 3}), "pop"),
            (json!({"push": [{"id": 4096}]}), "push[0].id"),
            (json!({"push": [{"id": 1, "priority": 8}]}), "push[0].priority"),
            (json!({"push": [{"id": 1}, {"id": 1}, {"id": 1}]}), "push"),
            (json!({"rewrite": {"4096": 1}}), "rewrite.4096"),
            (json!({"pop": 1, "strict": true}), "strict"),
        ] {
            let problems = from_value::<Options>(options.clone()).expect("options").check();
            assert_eq!(problems.first().map(|problem| problem.key.as_str()), Some(key), "{options}");
        }
    }
}
