"""The engine, the specimens and the readers are modules beside the tests. The large run says how many cases it tried."""

from typing import Any

CASES = "fuzz cases"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The sum of what the tests recorded under `CASES`."""
    reports = terminalreporter.getreports("passed")
    total = sum(count for report in reports for key, count in report.user_properties if key == CASES)
    if total:
        terminalreporter.write_line(f"{total:,} {CASES}")
