use super::Scanned;
use memchr::memmem;

impl<'a> Scanned<'a> {
    /// The session description: the body, or the part of a multipart body that is one (RFC 5621 section 3.1, RFC 2046 section 5.1).
    pub fn session(&self) -> &'a [u8] {
        session(self.content_type.unwrap_or_default(), self.body)
    }
}

/// The same of a body of this Content-Type.
pub fn session<'a>(content_type: &[u8], body: &'a [u8]) -> &'a [u8] {
    inside(content_type, body, 2)
}

/// `depth`: so many multipart bodies may be in one another.
fn inside<'a>(content_type: &[u8], body: &'a [u8], depth: u32) -> &'a [u8] {
    if depth == 0 || !content_type.get(..10).is_some_and(|kind| kind.eq_ignore_ascii_case(b"multipart/")) {
        return body;
    }
    let Some(boundary) = boundary(content_type) else { return body };
    let delimiter = [b"--", boundary].concat();
    let mut starts =
        memmem::find_iter(body, &delimiter).filter(|at| *at == 0 || body[at - 1] == b'\n').peekable();
    while let Some(start) = starts.next() {
        let end = starts.peek().map_or(body.len(), |next| *next);
        let part = &body[start + delimiter.len()..end];
        let Some(head) = memmem::find(part, b"\r\n\r\n") else { continue };
        let (fields, inner) = (&part[..head], &part[head + 4..]);
        // the line end in front of a delimiter is the delimiter's
        let inner = inner.strip_suffix(b"\r\n").unwrap_or(inner);
        let kind = fields.split(|byte| *byte == b'\n').find_map(|line| field(line, b"content-type"));
        match kind {
            Some(kind) if starts_with(kind, b"application/sdp") => return inner,
            Some(kind) if starts_with(kind, b"multipart/") => {
                let found = inside(kind, inner, depth - 1);
                if found.len() < inner.len() {
                    return found;
                }
            }
            _ => {}
        }
    }
    body
}

fn starts_with(text: &[u8], start: &[u8]) -> bool {
    text.get(..start.len()).is_some_and(|text| text.eq_ignore_ascii_case(start))
}

/// The value of a header field in this line.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    line[..colon].trim_ascii().eq_ignore_ascii_case(name).then(|| line[colon + 1..].trim_ascii())
}

fn boundary(content_type: &[u8]) -> Option<&[u8]> {
    let mut params = content_type.split(|byte| *byte == b';').skip(1).map(<[u8]>::trim_ascii);
    let value = params.find_map(|one| {
        let equals = one.iter().position(|byte| *byte == b'=')?;
        one[..equals].trim_ascii().eq_ignore_ascii_case(b"boundary").then(|| one[equals + 1..].trim_ascii())
    })?;
    let value = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value);
    (1..=70).contains(&value.len()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_description_is_found_among_parts() {
        let sdp = "v=0\r\no=- 1 1 IN IP4 h\r\n";
        let plain = format!(
            "--b1\r\nContent-Type: text/plain\r\n\r\n--b\r\n--b1\r\ncontent-type : Application/SDP;x=y\r\n\r\n{sdp}\r\n--b1--\r\n"
        );
        let nested =
            format!("--o\r\nContent-Type: multipart/alternative; boundary=\"b1\"\r\n\r\n{plain}\r\n--o--");
        for (kind, body, found) in [
            ("application/sdp", sdp, sdp),
            ("multipart/mixed;boundary=b1", &*plain, sdp),
            ("Multipart/Mixed; boundary=\"b1\"", &*plain, sdp),
            ("multipart/mixed; boundary=o", &*nested, sdp),
            ("multipart/mixed", &*plain, &*plain),
            ("multipart/mixed;boundary=none", &*plain, &*plain),
            ("", sdp, sdp),
        ] {
            assert_eq!(session(kind.as_bytes(), body.as_bytes()), found.as_bytes(), "{kind}");
        }
    }
}
