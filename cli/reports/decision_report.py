"""The line about a decision: what is the case now, or that it was so before and nothing was logged."""

from typing import TYPE_CHECKING

from onnxreg.cli.context import Session

if TYPE_CHECKING:
    from onnxreg.registry.log.decisions import DecisionResult
    from onnxreg.registry.store.protocol import RegistryStore


def report_decision(
    session: Session,
    result: "DecisionResult",
    news: str,
    status_quo: str,
    store: "RegistryStore | None",
    reason: str | None,
) -> None:
    """Print the news of a logged decision; else that there was nothing to do, and that a reason is lost.

    Args:
        news: a sentence about what is the case now.
        status_quo: the same, if it was the case before.
        store: the remote that was written to, if any.
        reason: the reason that the user gave.
    """
    if result.is_logged:
        session.say(f"{news}{session.place(store)}")
    else:
        lost = "; the reason is not logged" if reason else ""
        session.say(f"nothing to do: {status_quo}{session.place(store)}{lost}")
