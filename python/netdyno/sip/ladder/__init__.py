"""Ladder diagrams of SIP messages: from a capture or a list of messages to text, SVG and a page."""
