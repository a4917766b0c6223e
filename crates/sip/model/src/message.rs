//! Messages as they leave: requests, responses and session descriptions, written straight into a buffer.

use protocol::template::decimal;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};

/// Length of our branches: the magic cookie of RFC 3261 section 8.1.1.7, and three numbers of fixed width.
pub(crate) const COOKIE: &[u8] = b"z9hG4bKnd";
/// Digits of each number.
const DIGITS: usize = 8;

/// Append `value` as eight hexadecimal digits.
#[inline]
pub(crate) fn hex8(value: u32, out: &mut Vec<u8>) {
    let mut digits = [0; DIGITS];
    for (i, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(value >> (28 - 4 * i) & 15) as usize];
    }
    out.extend_from_slice(&digits);
}

fn read_hex8(digits: &[u8]) -> Option<u32> {
    let digits = digits.get(..DIGITS)?;
    digits.iter().try_fold(0, |value, digit| Some(value << 4 | (*digit as char).to_digit(16)?))
}

/// A branch: which device, which of its transactions, and which run.
#[inline]
pub(crate) fn branch(device: u32, number: u32, run: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(COOKIE);
    hex8(device, out);
    hex8(number, out);
    hex8(run as u32, out);
}

/// The device and transaction of a branch of this run's; `None`: another's.
pub(crate) fn read_branch(branch: &[u8], run: u64) -> Option<(u32, u32)> {
    let rest = branch.strip_prefix(COOKIE).filter(|rest| rest.len() == 3 * DIGITS)?;
    let (device, number) = (read_hex8(rest)?, read_hex8(&rest[DIGITS..])?);
    (read_hex8(&rest[2 * DIGITS..])? == run as u32).then_some((device, number))
}

/// The number of the call that one of our Call-IDs names.
pub(crate) fn read_call(call_id: &[u8]) -> Option<u32> {
    call_id.get(DIGITS..).and_then(read_hex8)
}

/// The user part of our Contact: the device's number, so that a request tells whom it is for.
pub(crate) fn contact_user(device: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"nd");
    hex8(device, out);
}

/// The device whose Contact a Request-URI is, by [`contact_user`].
pub(crate) fn read_contact_user(uri: &[u8]) -> Option<u32> {
    let rest = uri.strip_prefix(b"sip:nd").or_else(|| uri.strip_prefix(b"sips:nd"))?;
    (rest.get(DIGITS) == Some(&b'@')).then(|| read_hex8(rest))?
}

/// Append `<sip:ndXXXXXXXX@HOST;transport=…>`; `host` appends the host.
pub(crate) fn contact(device: u32, transport: &str, host: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
    out.extend_from_slice(if transport == "TLS" { b"<sips:" } else { b"<sip:" });
    contact_user(device, out);
    out.push(b'@');
    host(out);
    out.extend_from_slice(match transport {
        "TCP" => b";transport=tcp",
        "SCTP" => b";transport=sctp",
        // RFC 7118 section 5.2.2: of WSS too
        "WS" | "WSS" => b";transport=ws",
        _ => b"",
    });
    out.push(b'>');
}

/// Append the host of a user agent that nobody can connect to (RFC 7118 section 5.2.1, RFC 6761 section 6.4).
pub(crate) fn invalid_host(device: u32, run: u64, out: &mut Vec<u8>) {
    contact_user(device, out);
    hex8(run as u32, out);
    out.extend_from_slice(b".invalid");
}

/// Append what a Contact of a registration has behind its URI, so that it belongs to the connection (RFC 5626 section 4.2).
pub(crate) fn instance(device: u32, run: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b";reg-id=1;+sip.instance=\"<urn:uuid:");
    hex8(device, out);
    out.extend_from_slice(b"-0000-4000-8000-0000");
    hex8(run as u32, out);
    out.extend_from_slice(b">\"");
}

/// Append an address with its port; IPv6 in brackets.
#[inline]
pub(crate) fn address(address: SocketAddr, out: &mut Vec<u8>) {
    if address.is_ipv6() {
        out.push(b'[');
    }
    ip(address.ip(), out);
    out.extend_from_slice(if address.is_ipv6() { b"]:" } else { b":" });
    decimal(address.port().into(), out);
}

#[inline]
fn ip(ip: IpAddr, out: &mut Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => {
            for (i, octet) in ip.octets().into_iter().enumerate() {
                if i > 0 {
                    out.push(b'.');
                }
                decimal(octet.into(), out);
            }
        }
        // writing into a vector cannot fail
        IpAddr::V6(ip) => drop(write!(out, "{ip}")),
    }
}

/// Append a header field whose value is a number.
#[inline]
pub(crate) fn number(name: &str, value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    decimal(value, out);
    out.extend_from_slice(b"\r\n");
}

/// Append Content-Type, Content-Length, the empty line and the body.
pub(crate) fn body(content_type: &str, body: &[u8], out: &mut Vec<u8>) {
    if !body.is_empty() {
        out.extend_from_slice(b"Content-Type: ");
        out.extend_from_slice(content_type.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    number("Content-Length", body.len() as u64, out);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
}

/// Append a session description (RFC 8866) without media: the stream is declared and inactive. It is padded to `size`.
pub(crate) fn session_description(device: u32, ip: IpAddr, size: usize, out: &mut Vec<u8>) {
    let start = out.len();
    let family: &[u8] = if ip.is_ipv4() { b"IN IP4 " } else { b"IN IP6 " };
    out.extend_from_slice(b"v=0\r\no=- ");
    decimal(device.into(), out);
    out.extend_from_slice(b" 1 ");
    out.extend_from_slice(family);
    self::ip(ip, out);
    out.extend_from_slice(b"\r\ns=-\r\nc=");
    out.extend_from_slice(family);
    self::ip(ip, out);
    out.extend_from_slice(
        b"\r\nt=0 0\r\nm=audio 9 RTP/AVP 0 8\r\na=rtpmap:0 PCMU/8000\r\na=rtpmap:8 PCMA/8000\r\na=inactive\r\n",
    );
    pad(start, size, out);
}

/// Pad the session description from `start` on to `size` bytes.
pub(crate) fn pad(start: usize, size: usize, out: &mut Vec<u8>) {
    const LINE: &[u8] = b"a=x-padding:";
    // lines of at most 1000 bytes, each with its own end
    loop {
        let missing = size.saturating_sub(out.len() - start);
        if missing < LINE.len() + 3 {
            break;
        }
        let room = missing.min(1000) - LINE.len() - 2;
        out.extend_from_slice(LINE);
        out.resize(out.len() + room, b'x');
        out.extend_from_slice(b"\r\n");
    }
}

/// A number for a text, by which two are told apart.
#[inline]
pub(crate) fn fingerprint(text: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(ODD);
    let mut words = text.chunks_exact(8);
    let hash = words.by_ref().fold(text.len() as u64, |hash, word| {
        mix(hash, word.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    });
    let rest = words.remainder().iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let hash = mix(hash, rest);
    (hash ^ hash >> 32).wrapping_mul(ODD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_differ_in_a_byte_have_other_numbers() {
        let text = b"00000001000000020000abcd0000ef01@netdyno";
        let mut seen = vec![fingerprint(text)];
        for at in 0..text.len() {
            let mut other = *text;
            other[at] ^= 1;
            seen.extend([fingerprint(&other), fingerprint(&text[..at])]);
        }
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all);
    }

    #[test]
    fn a_branch_tells_whose_it_is() {
        let mut out = Vec::new();
        branch(70_000, 12, 0x1_0000_00ab, &mut out);
        assert_eq!(out, b"z9hG4bKnd000111700000000c000000ab");
        assert_eq!(read_branch(&out, 0xab), Some((70_000, 12)));
        assert_eq!(read_branch(&out, 0xac), None);
        assert_eq!(read_branch(b"z9hG4bKnd0001117000000000c", 0xab), None);
        assert_eq!(read_branch(b"z9hG4bKndx0011170000000000000000ab", 0xab), None);
    }

    #[test]
    fn contacts_name_transport_and_family() {
        let text = |transport| {
            let mut out = Vec::new();
            let local = if transport == "UDP" { "[fd00::1]:5070" } else { "10.0.0.255:5070" };
            let local = local.parse().expect("address");
            contact(3, transport, |out| address(local, out), &mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(text("UDP"), "<sip:nd00000003@[fd00::1]:5070>");
        assert_eq!(text("TCP"), "<sip:nd00000003@10.0.0.255:5070;transport=tcp>");
        assert_eq!(text("TLS"), "<sips:nd00000003@10.0.0.255:5070>");
        assert_eq!(text("WSS"), "<sip:nd00000003@10.0.0.255:5070;transport=ws>");
    }

    #[test]
    fn a_session_description_is_padded_to_its_size() {
        for size in [0, 300, 1500, 5000] {
            let mut out = Vec::new();
            session_description(1, "10.0.0.1".parse().expect("address"), size, &mut out);
            assert!(
                out.len() <= size.max(200) && (size == 0 || out.len() + 15 > size),
                "{size}: {}",
                out.len()
            );
            assert!(out.ends_with(b"\r\n"));
        }
    }
}
