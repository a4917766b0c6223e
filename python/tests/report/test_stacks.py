"""The table of what stacks over ports counted."""

from __future__ import annotations

from netdyno.core.result import Repetition
from netdyno.report import stacks


def test_each_port_with_a_stack_has_a_row_with_its_reasons() -> None:
    port = {
        "rx_packets": 900,
        "tcp_segments_sent": 700,
        "tcp_retransmitted": 12,
        "tcp_timeouts": 3,
        "tcp_resets_sent": 1,
        "dropped_bad_checksum": 2,
        "dropped_no_connection": 5,
    }
    table = stacks.table(Repetition(run="r", interfaces={"lo": {"rx_packets": 5}, "a": port}))
    (row,) = table.rows
    assert [cell.sort for cell in row[1:6]] == [700, 12, 3, 1, 7]
    assert "no_connection 5, bad_checksum 2" in str(row[6].text)
    assert not stacks.table(Repetition(run="r", interfaces={"lo": {"rx_packets": 5}})).rows
