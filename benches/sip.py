"""The cases of SIP by their names."""

from __future__ import annotations

import cases_sip
import cases_sip_streams
from case import Case, cost, less, rate
from judge import Goal

CASES: dict[str, Case] = {
    "sip-call": Case(
        cases_sip.shared,
        rate("calls/s", Goal(least=4.5, ratio=True))
        | cost("µs/call", Goal(least=4.5, ratio=True))
        | {"uas": less("µs/call", Goal(least=4.5, ratio=True))},
    ),
    "sip-call-own": Case(
        cases_sip.own, rate("calls/s", Goal(least=2, ratio=True)) | cost("µs/call", Goal(least=2, ratio=True))
    ),
    "sip-register": Case(
        cases_sip.registrations, rate("registrations/s") | cost("µs/registration", Goal(most=5))
    ),
    "sip-registered": Case(cases_sip.registered, {"memory": less("bytes/user", Goal(most=300))}),
    "sip-call-tcp": Case(
        cases_sip_streams.tcp,
        rate("calls/s", Goal(least=3, ratio=True)) | cost("µs/call", Goal(least=3, ratio=True)),
    ),
    "sip-call-tls": Case(cases_sip_streams.tls, rate("calls/s") | cost("µs/call")),
    "sip-audio": Case(
        cases_sip_streams.audio,
        {"calls": rate("calls", Goal(least=3000))["rate"], "lost": less("share", Goal(most=0))}
        | cost("µs/packet"),
    ),
    "sip-delay": Case(
        cases_sip_streams.delay, {"late": less("µs", Goal(most=300))} | rate("calls/s") | cost("µs/call")
    ),
}
