//! Hardware addresses as people write them.

use packet::Mac;
use serde::{Deserialize, Deserializer, Serializer, de};

/// `02:00:00:00:00:01`.
pub fn text(mac: &Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Bytes written in hexadecimal digits with colons between them, one or two digits each; not more than `most`.
pub fn bytes(text: &str, most: usize) -> Option<Vec<u8>> {
    let mut found = Vec::new();
    for part in text.split(':') {
        let digits = (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !digits || found.len() == most {
            return None;
        }
        found.push(u8::from_str_radix(part, 16).ok()?);
    }
    Some(found)
}

/// As a string, for `#[serde(with = "nat_dhcp::mac")]`.
pub fn serialize<S: Serializer>(mac: &Mac, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&text(mac))
}

/// An Ethernet address from its text.
pub fn parse(text: &str) -> Option<Mac> {
    Mac::try_from(bytes(text, 6)?).ok()
}

/// From a string.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Mac, D::Error> {
    let text = String::deserialize(from)?;
    parse(&text)
        .ok_or_else(|| de::Error::custom(format!("{text:?} is no hardware address like 02:00:00:00:00:01")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mac = [2, 0, 0xab, 0, 0, 0xff];
        assert_eq!(text(&mac), "02:00:ab:00:00:ff");
        assert_eq!(bytes(&text(&mac), 6).as_deref(), Some(&mac[..]));
        assert_eq!(bytes("1:2", 6), Some(vec![1, 2]));
        for wrong in ["", ":", "1:", "123", "+1", "x", "1:2:3:4:5:6:7"] {
            assert_eq!(bytes(wrong, 6), None, "{wrong}");
        }
    }
}
