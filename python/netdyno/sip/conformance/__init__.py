"""Conformance of SIP servers: a test file a purpose (`purpose/`), and the messages of RFC 4475."""
