//! What is said of a connection that ends before a response is whole.

use super::Device;
use super::wire::Body;
use crate::cause::Cause;
use crate::meter::Failure;
use crate::model::Cx;

impl Device {
    /// Explain the end of a connection on which a response was waited for.
    pub(super) fn explain(&self, cx: &mut Cx<'_>, why: Failure) {
        if self.reading == Some(Body::UntilClose) && cx.truncated {
            cx.explain(Cause::named(why, "ended without TLS close_notify"), || {
                "ended without TLS close_notify: it may be cut short (RFC 9112 section 9.8)".into()
            });
        } else if self.begun {
            let (at, what) = self.place();
            cx.explain(Cause::named(why, at), || format!("the connection ended {what}"));
        } else if self.may_retry() {
            cx.explain(Cause::named(why, "idle close"), || {
                format!(
                    "the server closed the idle connection as a {} was on its way, which may not be sent again \
                     (RFC 9110 section 9.2.2)",
                    self.oldest().method
                )
            });
        } else if self.retried > 0 {
            cx.explain(Cause::named(why, "closed twice"), || {
                "the server closed the connection twice before it answered this request".into()
            });
        } else {
            // a server that expects TLS closes so as well
            let what = "before any response";
            cx.explain(Cause::named(why, what), || "the connection ended before any response".into());
        }
    }

    /// Where in a response that has begun nothing more comes: as the name of a cause, and in words.
    pub(super) fn place(&self) -> (&'static str, String) {
        const BODY: &str = "in the body";
        match &self.reading {
            None if self.status == 0 => ("in the head", "in the head of the response".into()),
            None => {
                let what = format!("after the interim response {}", self.status);
                ("after an interim response", what)
            }
            Some(Body::Length(left)) => match u64::from(self.length).checked_sub(*left) {
                Some(taken) if self.length < u32::MAX => {
                    (BODY, format!("after {taken} of {} bytes of the body", self.length))
                }
                _ => (BODY, format!("{left} bytes before the end of the body")),
            },
            Some(Body::Chunked(_)) => (BODY, "before the last chunk of the body".into()),
            Some(Body::UntilClose) => (BODY, "in a body that ends with the connection".into()),
        }
    }
}

#[cfg(test)]
#[path = "cut_tests.rs"]
mod tests;
