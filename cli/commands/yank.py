"""`reg yank`: taking a version out of use."""

from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import ExactRefArgument, Reason, TargetRemote
from onnxreg.cli.reports.decision_report import report_decision

EXAMPLES = (
    "reg yank acme/pii-small:1.2.0 --reason 'labels in the wrong order'",
    "reg yank acme/pii-small:1.2.0 --undo",
    "reg yank acme/pii-small:1.2.0 --remote origin",
)


def command(
    session: Session,
    ref: ExactRefArgument,
    remote: TargetRemote = None,
    reason: Reason = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the yank back.")] = False,
) -> None:
    """Stop a version from being resolved, except by its digest.

    It holds for the manifest: each version with the same manifest is yanked too, also a later one, until
    --undo. Other manifests with artifacts of yanked versions are published only with --yanked-bytes.
    """
    registry, store = session.with_remote(remote)
    result = registry.yank(ref, reason, undo, store)
    news, status_quo = ("is no longer", "is not") if undo else ("is", "is already")
    name = result.target.ref
    report_decision(session, result, f"{name} {news} yanked", f"{name} {status_quo} yanked", store, reason)
    if not undo:
        from onnxreg.registry.log.lookup import read_log

        for tag, channel in read_log(store or registry.store, result.target.name).state.channels.items():
            if channel.version in (result.target.version, *result.others):
                option = "" if remote is None else f" --remote {remote}"
                move = f"reg tag {result.target.name}:VERSION {tag}{option}"
                session.warn(f"warning: {tag} holds it and resolves to nothing until it moves: {move}")
    if result.is_logged and result.others:
        versions = ", ".join(f"{result.target.name}:{version}" for version in result.others)
        session.say(f"the same holds for {versions}, with the same manifest")
