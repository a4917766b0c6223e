//! Status codes with their reason phrases (RFC 3261 section 21, and the registry of SIP parameters).

use protocol::cause::{Cause, Detail};
use protocol::meter::Failure;

/// By their codes.
const STATUSES: &[&str] = &[
    "100 Trying",
    "180 Ringing",
    "181 Call Is Being Forwarded",
    "182 Queued",
    "183 Session Progress",
    "199 Early Dialog Terminated",
    "200 OK",
    "202 Accepted",
    "204 No Notification",
    "300 Multiple Choices",
    "301 Moved Permanently",
    "302 Moved Temporarily",
    "305 Use Proxy",
    "380 Alternative Service",
    "400 Bad Request",
    "401 Unauthorized",
    "402 Payment Required",
    "403 Forbidden",
    "404 Not Found",
    "405 Method Not Allowed",
    "406 Not Acceptable",
    "407 Proxy Authentication Required",
    "408 Request Timeout",
    "410 Gone",
    "412 Conditional Request Failed",
    "413 Request Entity Too Large",
    "414 Request-URI Too Long",
    "415 Unsupported Media Type",
    "416 Unsupported URI Scheme",
    "417 Unknown Resource-Priority",
    "420 Bad Extension",
    "421 Extension Required",
    "422 Session Interval Too Small",
    "423 Interval Too Brief",
    "424 Bad Location Information",
    "428 Use Identity Header",
    "429 Provide Referrer Identity",
    "430 Flow Failed",
    "433 Anonymity Disallowed",
    "436 Bad Identity-Info",
    "437 Unsupported Certificate",
    "438 Invalid Identity Header",
    "439 First Hop Lacks Outbound Support",
    "440 Max-Breadth Exceeded",
    "469 Bad Info Package",
    "470 Consent Needed",
    "478 Unresolvable Destination",
    "480 Temporarily Unavailable",
    "481 Call/Transaction Does Not Exist",
    "482 Loop Detected",
    "483 Too Many Hops",
    "484 Address Incomplete",
    "485 Ambiguous",
    "486 Busy Here",
    "487 Request Terminated",
    "488 Not Acceptable Here",
    "489 Bad Event",
    "491 Request Pending",
    "493 Undecipherable",
    "494 Security Agreement Required",
    "500 Server Internal Error",
    "501 Not Implemented",
    "502 Bad Gateway",
    "503 Service Unavailable",
    "504 Server Time-out",
    "505 Version Not Supported",
    "513 Message Too Large",
    "555 Push Notification Service Not Supported",
    "580 Precondition Failure",
    "600 Busy Everywhere",
    "603 Decline",
    "604 Does Not Exist Anywhere",
    "606 Not Acceptable",
    "607 Unwanted",
    "608 Rejected",
];

fn reason_phrase(status: u16) -> Option<&'static str> {
    let code = |text: &str| text.split(' ').next().and_then(|code| code.parse::<u16>().ok());
    STATUSES.iter().copied().find(|text| code(text) == Some(status))
}

/// The usual reason phrase of a status code.
pub(crate) fn reason(status: u16) -> &'static str {
    match reason_phrase(status) {
        Some(text) => text.split_once(' ').map_or("", |(_, reason)| reason),
        None => match status / 100 {
            1 => "Progress",
            2 => "OK",
            3 => "Redirection",
            4 => "Request Failure",
            5 => "Server Failure",
            _ => "Global Failure",
        },
    }
}

/// That a request was rejected with this status.
pub(crate) fn rejected(status: u16) -> Cause {
    let detail = reason_phrase(status).map_or(Detail::Status(status), Detail::Named);
    Cause { kind: Failure::Rejected, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_their_phrases() {
        assert!(STATUSES.is_sorted());
        assert_eq!(
            (reason(404), reason(499), reason(700)),
            ("Not Found", "Request Failure", "Global Failure")
        );
        assert_eq!(rejected(404).detail.to_string(), "404 Not Found");
        assert_eq!(rejected(499).detail, Detail::Status(499));
    }
}
