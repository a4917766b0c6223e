//! What a 2xx to REGISTER says of our binding (RFC 3261 section 10.3).

use crate::dialog::{contact_uri, parameters, values};
use sip_core::message::{Fields, Name};

/// Why nothing is registered.
pub(crate) const NONE: &str = "a 200 to REGISTER without a binding";
pub(crate) const ENDED: &str = "a 200 to REGISTER whose binding has ended";

/// Why nothing is registered, although the registrar says so; `None`: there is a binding. `ours`: our Contact. Other Contacts
/// alone are one too: somebody on the way may have rewritten ours.
pub(crate) fn missing(bytes: &[u8], fields: usize, ours: &[u8]) -> Option<&'static str> {
    let ours = place(ours);
    let (mut any, mut ended, mut lasts) = (false, false, false);
    // section 10.2.1.1: for Contacts that name no lifetime
    let (mut unnamed, mut usual) = (false, None);
    let mut read = Fields::new(bytes, fields);
    while let Ok(Some(field)) = read.next() {
        match field.name {
            Name::Contact => {
                for contact in values(field.value) {
                    any = true;
                    if place(contact).eq_ignore_ascii_case(ours) {
                        match lifetime(contact) {
                            Some(0) => ended = true,
                            Some(_) => lasts = true,
                            None => unnamed = true,
                        }
                    }
                }
            }
            Name::Expires => usual = number(field.value),
            _ => {}
        }
    }
    match (unnamed, usual) {
        (true, Some(0)) => ended = true,
        (true, _) => lasts = true,
        (false, _) => {}
    }
    if !any {
        return Some(NONE);
    }
    (ended && !lasts).then_some(ENDED)
}

/// User, host and port of a Contact's URI.
fn place(contact: &[u8]) -> &[u8] {
    let uri = contact_uri(contact);
    let rest = uri.iter().position(|byte| *byte == b':').map_or(uri, |colon| &uri[colon + 1..]);
    rest.split(|byte| *byte == b';').next().unwrap_or_default()
}

/// Parameter `expires` of a Contact.
fn lifetime(contact: &[u8]) -> Option<u64> {
    let mut parameters = parameters(contact)
        .split(|byte| *byte == b';')
        .skip(1)
        .map(|one| one.splitn(2, |byte| *byte == b'='));
    parameters.find_map(|mut one| {
        let is_expires = one.next()?.trim_ascii().eq_ignore_ascii_case(b"expires");
        one.next().filter(|_| is_expires).and_then(number)
    })
}

fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_needs_a_binding_that_lasts() {
        let ours = b"<sip:nd00000000@10.0.0.1:40000;transport=tcp>";
        let of = |fields: &str| {
            let message = format!("SIP/2.0 200 OK\r\nTo: <sip:a@b>\r\n{fields}\r\n");
            missing(message.as_bytes(), 16, ours)
        };
        for lasting in [
            "Contact: <sip:nd00000000@10.0.0.1:40000;transport=tcp>;expires=60\r\n",
            "m: <sip:nd00000000@10.0.0.1:40000>;q=0.5;Expires=60\r\n",
            "Contact: sip:nd00000000@10.0.0.1:40000;expires=60\r\n",
            "Contact: <sip:nd00000000@10.0.0.1:40000>\r\n",
            "Expires: 60\r\nContact: <sip:nd00000000@10.0.0.1:40000>\r\n",
            "Expires: 0\r\nContact: <sip:nd00000000@10.0.0.1:40000>;expires=60\r\n",
            // of another address, as behind a server that rewrites it
            "Contact: <sip:nd00000000@192.0.2.7:1024>;expires=60\r\n",
            "Expires: 0\r\nContact: <sip:nd00000000@10.0.0.1:40000>;expires=60;+sip.instance=\"<urn:uuid:7ba1>\"\r\n",
            "Contact: <sip:x@y>;expires=0, \"a, b\" <sip:nd00000000@10.0.0.1:40000>;expires=60\r\n",
            // one that ends, and the new one
            "Contact: <sip:nd00000000@10.0.0.1:40000>;expires=0, <sip:nd00000000@10.0.0.1:40000;x=1>;expires=9\r\n",
        ] {
            assert_eq!(of(lasting), None, "{lasting}");
        }
        assert_eq!(of("Expires: 60\r\n"), Some(NONE));
        for ended in [
            "Contact: <sip:nd00000000@10.0.0.1:40000;transport=tcp>;expires=0\r\n",
            "Contact: <sip:nd00000000@10.0.0.1:40000>\r\nExpires: 0\r\n",
            "Contact: <sip:x@y>;expires=60\r\nContact: <sip:ND00000000@10.0.0.1:40000>;EXPIRES = 0\r\n",
        ] {
            assert_eq!(of(ended), Some(ENDED), "{ended}");
        }
    }
}
