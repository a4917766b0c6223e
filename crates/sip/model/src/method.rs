//! Methods of requests that scenarios send and expect.

use std::fmt;

macro_rules! methods {
    ($($variant:ident $text:literal),+ $(,)?) => {
        /// A method (RFC 3261, 3262, 3265, 3311, 3428, 3515, 3903, 6086).
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Method {
            $( #[doc = $text] $variant, )+
            /// One that scenarios do not name.
            Unknown,
        }

        impl Method {
            /// Every method that has a name.
            pub const NAMES: &[&str] = &[$($text),+];

            /// The method of this name; names have a case (RFC 3261 section 7.1).
            pub fn of(name: &[u8]) -> Self {
                $( if name == $text.as_bytes() { return Self::$variant; } )+
                Self::Unknown
            }

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => $text, )+
                    Self::Unknown => "unknown",
                }
            }
        }
    };
}

methods! {
    Invite "INVITE", Ack "ACK", Bye "BYE", Register "REGISTER", Cancel "CANCEL", Options "OPTIONS", Message "MESSAGE",
    Subscribe "SUBSCRIBE", Notify "NOTIFY", Info "INFO", Update "UPDATE", Refer "REFER", Prack "PRACK", Publish "PUBLISH",
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
