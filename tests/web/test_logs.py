"""The log is read line by line, by people and by machines: one line an event, whatever came from outside."""

import logging
import sys

from web.house import Waits
from web.logs import FORM, OneLine


def line(message: str, *, failed: bool = False) -> str:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        raised = sys.exc_info() if failed else None
    return OneLine(FORM).format(logging.LogRecord("outrider", logging.ERROR, "", 0, message, (), raised))


def test_f177_a_break_or_control_in_a_text_is_shown_and_forges_no_line() -> None:
    logged = line("a\n2026-11-30 INFO forged\r\x1b[2J\u2028b")
    assert len(logged.splitlines()) == 1
    assert logged.endswith(r"a\n2026-11-30 INFO forged\r\x1b[2J\u2028b")


def test_f177_a_traceback_is_one_line_and_whole() -> None:
    logged = line("error 12ab", failed=True)
    assert len(logged.splitlines()) == 1
    assert "Traceback" in logged and r"ValueError: first\nsecond" in logged


def test_f051_where_answers_are_not_kept_whole_no_line_quotes_more_of_them() -> None:
    record = logging.LogRecord("outrider", logging.ERROR, "", 0, "said to ada@example.com", (), None)
    assert OneLine(FORM, masked=True).format(record).endswith("said to ***")
    assert OneLine(FORM).format(record).endswith("said to ada@example.com")


def test_f168_waits_that_keep_being_cut_off_are_named_with_the_deadline() -> None:
    """How a proxy shows that is less patient than this server: some cuts are nothing, many are told."""
    waits = Waits(20)
    for _ in range(Waits.MANY - 1):
        waits.ended(15.0)
        waits.ended(None)
    assert waits.warning is None
    waits.ended(15.0)
    assert waits.warning is not None
    assert "OUTRIDER_BLOCKING_WAIT_S (20 s)" in waits.warning and "15.0 s" in waits.warning
    for _ in range(Waits.LOOKED_AT):
        waits.ended(None)
    assert waits.warning is None
