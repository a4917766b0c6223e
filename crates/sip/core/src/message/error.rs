use super::Name;

/// Why a message is not well formed, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at byte {offset}")]
pub struct Error {
    /// The defect.
    pub fault: Fault,
    /// Offset of the defect from the first byte given.
    pub offset: usize,
}

impl Error {
    pub(crate) fn new(fault: Fault, offset: usize) -> Self {
        Self { fault, offset }
    }
}

/// A defect of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Fault {
    /// The head has no empty line at its end.
    #[error("the head does not end with an empty line")]
    UnterminatedHead,
    /// A line ends with CR or LF alone (RFC 3261 section 7).
    #[error("a line does not end with CRLF")]
    LineEnd,
    /// The start line is neither a request line nor a status line (RFC 3261 section 7.1, 7.2).
    #[error("the start line is malformed")]
    StartLine,
    /// The protocol version is not SIP/2.0.
    #[error("the SIP version is not 2.0")]
    Version,
    /// The status code is not within 100 to 699.
    #[error("the status code is not within 100 to 699")]
    StatusCode,
    /// The Request-URI is malformed.
    #[error("the Request-URI is malformed")]
    RequestUri,
    /// A header line has no name or no colon.
    #[error("a header line has no valid name")]
    HeaderName,
    /// Bytes of the head are not UTF-8.
    #[error("the head is not UTF-8")]
    Utf8,
    /// A header field is longer than [`MAX_FIELD`](super::MAX_FIELD).
    #[error("a header field is longer than {} bytes", super::MAX_FIELD)]
    LongField,
    /// There are more header fields than [`MAX_FIELDS`](super::MAX_FIELDS).
    #[error("there are more than {} header fields", super::MAX_FIELDS)]
    ManyFields,
    /// The head is longer than [`MAX_HEAD`](super::MAX_HEAD).
    #[error("the head is longer than {} bytes", super::MAX_HEAD)]
    LongHead,
    /// The body is longer than [`MAX_BODY`](super::MAX_BODY).
    #[error("the body is longer than {} bytes", super::MAX_BODY)]
    LongBody,
    /// The body is shorter than Content-Length says (RFC 3261 section 18.3).
    #[error("the body is shorter than Content-Length")]
    ShortBody,
    /// A mandatory header field is missing (RFC 3261 section 8.1.1).
    #[error("header field {0} is missing")]
    Missing(Name),
    /// A header field that may appear once appears again (RFC 3261 section 7.3.1).
    #[error("header field {0} appears more than once")]
    Repeated(Name),
    /// The value of a header field is malformed.
    #[error("the value of header field {0} is malformed")]
    Value(Name),
    /// The method of CSeq is not the method of the request (RFC 3261 section 8.1.1.5).
    #[error("the methods of CSeq and request line differ")]
    MethodMismatch,
}

impl Fault {
    /// Stable name, for counters and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnterminatedHead => "unterminated_head",
            Self::LineEnd => "line_end",
            Self::StartLine => "start_line",
            Self::Version => "version",
            Self::StatusCode => "status_code",
            Self::RequestUri => "request_uri",
            Self::HeaderName => "header_name",
            Self::Utf8 => "utf8",
            Self::LongField => "long_field",
            Self::ManyFields => "many_fields",
            Self::LongHead => "long_head",
            Self::LongBody => "long_body",
            Self::ShortBody => "short_body",
            Self::Missing(_) => "missing_header",
            Self::Repeated(_) => "repeated_header",
            Self::Value(_) => "header_value",
            Self::MethodMismatch => "method_mismatch",
        }
    }
}
