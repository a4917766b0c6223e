//! What a secret holds that is one by itself: a server repeats the token without its scheme, the cookie without its name.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// A secret, and each part of it that a server may repeat alone: what follows a scheme, the pair of Basic credentials and its
/// password, the parameters of a scheme, cookies and their values; each with its percent-encoding undone as well.
pub fn parts(secret: &str) -> Vec<String> {
    let mut all = vec![secret.to_owned()];
    all.extend(inner(secret).into_iter().map(str::to_owned));
    if let Some(pair) = secret.trim().split_once(' ').and_then(|(scheme, rest)| basic(scheme, rest)) {
        all.extend(pair.split_once(':').map(|(_, password)| password.to_owned()));
        all.push(pair);
    }
    for at in 0..all.len() {
        if let Some(text) = decoded(&all[at]) {
            all.push(text);
        }
    }
    // a page is shown without its tags
    for at in 0..all.len() {
        if all[at].contains('<') {
            let pieces: Vec<String> = all[at]
                .split('<')
                .flat_map(|piece| piece.split('>'))
                .map(|piece| piece.trim().to_owned())
                .collect();
            all.extend(pieces);
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Parts of a text, or of a template, that are secret with it; all that is before them is its form.
pub fn inner(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let text = text.trim();
    // RFC 9110 §11.4: a scheme, then a token or parameters
    let rest = match text.split_once(' ') {
        Some((scheme, rest)) if is_scheme(scheme) && (!rest.contains(' ') || rest.contains('=')) => {
            all.push(rest.trim());
            rest.trim()
        }
        _ => text,
    };
    // RFC 6265 §4.2.1, RFC 9110 §11.2
    for pair in rest.split([';', ',']).map(str::trim) {
        // not the padding of base64
        let named =
            pair.split_once('=').filter(|(name, value)| !name.contains('{') && value.contains(|c| c != '='));
        if let Some((_, value)) = named {
            all.extend([pair, value.trim().trim_matches('"')]);
        }
    }
    all
}

fn is_scheme(word: &str) -> bool {
    let mut bytes = word.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic())
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// The user name and password of Basic credentials (RFC 7617 section 2).
fn basic(scheme: &str, rest: &str) -> Option<String> {
    let bytes = scheme.eq_ignore_ascii_case("basic").then(|| BASE64.decode(rest.trim()).ok())??;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The text with its percent-encoding undone, if it has any.
fn decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| byte == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(value) => {
                out.push(value);
                at += 3;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).ok().filter(|made| made != text)
}
