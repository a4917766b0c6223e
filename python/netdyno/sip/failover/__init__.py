"""How long a domain is without service when one of its SIP servers fails (RFC 3263 section 4.3)."""
