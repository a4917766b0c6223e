//! What a user agent server refuses before it looks at the method (RFC 3261 sections 8.2, 12.2.2).

use super::{Field, Key, Server};
use crate::echo::Dialog;
use sip_core::Method;
use sip_core::message::{Message, Name, StartLine};
use std::sync::Arc;

/// A status with its reason, and header fields of the response.
type Refusal = (u16, &'static str, Vec<Field>);
/// Requests outside of dialogs that are remembered: the latest, since copies come by other ways within moments.
const ROOM: usize = 4096;

impl Server {
    /// Why a request is refused.
    pub(super) fn refusal(&mut self, key: &Key, request: &Message, dialog: &Dialog) -> Option<Refusal> {
        let StartLine::Request { method, uri } = &request.start else { return None };
        let scheme = uri.split(':').next().unwrap_or_default();
        if !["sip", "sips", "tel"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return Some((416, "Unsupported URI Scheme", Vec::new()));
        }
        let cseq = request.cseq().map_or(0, |cseq| cseq.number);
        if dialog.ours.is_empty() {
            if self.merges(key, &format!("{method} {cseq} {} {}", dialog.theirs, dialog.call)) {
                return Some((482, "Loop Detected", Vec::new()));
            }
        } else if !self.dialogs.in_turn(dialog, cseq) {
            return Some((500, "CSeq Too Low", Vec::new()));
        }
        let required: Vec<&str> = request.values(Name::Require).filter(|value| !value.is_empty()).collect();
        if !required.is_empty() {
            return Some((420, "Bad Extension", vec![(Name::Unsupported, required.join(", "))]));
        }
        if !matches!(method, Method::Invite | Method::Update) || request.body.is_empty() {
            return None;
        }
        let first = |name| request.values(name).next().unwrap_or_default().to_ascii_lowercase();
        let encoding = first(Name::ContentEncoding);
        if !matches!(encoding.as_str(), "" | "identity") {
            return Some((415, "Unsupported Media Type", vec![(Name::AcceptEncoding, "identity".into())]));
        }
        let kind = first(Name::ContentType);
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let known = matches!(kind, "" | "application/sdp") || kind.starts_with("multipart/");
        if known || first(Name::ContentDisposition).contains("handling=optional") {
            return None;
        }
        Some((415, "Unsupported Media Type", vec![(Name::Accept, "application/sdp, multipart/mixed".into())]))
    }

    /// Whether a request that is being served came by another way before (section 8.2.2.2).
    fn merges(&mut self, key: &Key, origin: &str) -> bool {
        if let Some(first) = self.origins.get(origin) {
            return first != key && self.incoming.contains_key(first);
        }
        if self.origins_in_order.len() >= ROOM
            && let Some(oldest) = self.origins_in_order.pop_front()
        {
            self.origins.remove(&oldest);
        }
        let origin: Arc<str> = origin.into();
        self.origins_in_order.push_back(Arc::clone(&origin));
        self.origins.insert(origin, Arc::clone(key));
        false
    }
}

/// A request of another version of SIP as one of ours, so that it can be answered.
pub(super) fn of_version(bytes: &[u8]) -> Option<Vec<u8>> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    let start = bytes[..end].iter().rposition(|byte| *byte == b' ')?;
    Some([&bytes[..=start], b"SIP/2.0", &bytes[end..]].concat())
}
