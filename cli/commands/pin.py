"""`reg pin`: keeping a version whatever the retention policy."""

from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import ExactRefArgument, Reason, TargetRemote
from onnxreg.cli.reports.decision_report import report_decision
from onnxreg.schema.core.ref import Ref

EXAMPLES = (
    "reg pin acme/pii-small:1.2.0 --reason 'in devices until 2031'",
    "reg pin acme/pii-small:1.2.0 --undo",
    "reg pin acme/pii-small:1.2.0 --remote origin",
)


def command(
    session: Session,
    ref: ExactRefArgument,
    remote: TargetRemote = None,
    reason: Reason = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the pin back.")] = False,
) -> None:
    """Keep a version forever: `reg gc` does not let it expire."""
    registry, store = session.with_remote(remote)
    target = Ref.parse(ref)
    result = registry.decisions(target.name, store).pin(target, reason, undo)
    news, status_quo = ("is no longer", "is not") if undo else ("is", "is already")
    name = result.target.ref
    report_decision(session, result, f"{name} {news} pinned", f"{name} {status_quo} pinned", store, reason)
