"""SIP: registrars, proxies and redirect servers tested by registrations and calls."""
