"""SIP servers as devices under test."""
