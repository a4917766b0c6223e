"""A DNS server of the tester's own: answers for SIP (RFC 3263), and the ways in which they go wrong."""
