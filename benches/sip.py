"""The cases of SIP by their names."""

from __future__ import annotations

import cases_sip
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
}
