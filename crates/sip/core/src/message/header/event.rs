use super::{Params, Value, text, with_cursor};
use std::fmt;

macro_rules! token_with_params {
    ($type:ident $field:ident $type_doc:literal $doc:literal) => {
        #[doc = $type_doc]
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        pub struct $type {
            #[doc = $doc]
            pub $field: String,
            /// Parameters.
            pub params: Params,
        }

        impl Value for $type {
            fn read(input: &str) -> Option<(Self, &str)> {
                with_cursor(input, |read| {
                    let $field = text(read.token()?);
                    Some(Self { $field, params: Params::read(read)? })
                })
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", self.$field, self.params)
            }
        }
    };
}

token_with_params!(Event package "Event (RFC 6665 section 8.2.1)." "Event package, with its templates.");
token_with_params!(SubscriptionState state "Subscription-State (RFC 6665 section 8.2.3)." "`active`, `pending` or `terminated`.");

impl Event {
    /// Parameter `id`, which tells subscriptions of a dialog apart.
    pub fn id(&self) -> Option<&str> {
        self.params.get("id")
    }
}

impl SubscriptionState {
    /// Whether the subscription is over.
    pub fn terminated(&self) -> bool {
        self.state.eq_ignore_ascii_case("terminated")
    }

    /// Parameter `expires`, seconds.
    pub fn expires(&self) -> Option<u32> {
        self.params.get("expires")?.parse().ok()
    }
}
