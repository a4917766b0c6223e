use std::fmt;

macro_rules! methods {
    ($($variant:ident $text:literal $doc:literal;)*) => {
        /// Method of a request. Names are case-sensitive (RFC 3261 section 7.1).
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub enum Method {
            $(#[doc = $doc] $variant,)*
            /// An extension.
            Other(String),
        }

        impl Method {
            /// The method of this name.
            pub fn of(name: &str) -> Self {
                match name {
                    $($text => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }

            /// Name in messages.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other(name) => name,
                }
            }
        }
    };
}

methods! {
    Invite "INVITE" "RFC 3261 section 13.";
    Ack "ACK" "RFC 3261 section 13.2.2.4.";
    Bye "BYE" "RFC 3261 section 15.";
    Cancel "CANCEL" "RFC 3261 section 9.";
    Options "OPTIONS" "RFC 3261 section 11.";
    Register "REGISTER" "RFC 3261 section 10.";
    Prack "PRACK" "RFC 3262.";
    Subscribe "SUBSCRIBE" "RFC 6665.";
    Notify "NOTIFY" "RFC 6665.";
    Publish "PUBLISH" "RFC 3903.";
    Info "INFO" "RFC 6086.";
    Refer "REFER" "RFC 3515.";
    Message "MESSAGE" "RFC 3428.";
    Update "UPDATE" "RFC 3311.";
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
