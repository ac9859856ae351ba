"""The layer, the workloads and the invariants are modules beside the tests. Every run says how many states it checked."""

from typing import Any

STATES = "crash states"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The sum of what the tests recorded under this name."""
    reports = terminalreporter.getreports("passed")
    total = sum(count for report in reports for key, count in report.user_properties if key == STATES)
    if total:
        terminalreporter.write_line(f"{total:,} {STATES} checked")
