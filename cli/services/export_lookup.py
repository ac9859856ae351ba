"""Recognition of an export that was made before, by its request. Imports no framework."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.cli.context import Session
from onnxreg.cli.services.push_published import report_and_push
from onnxreg.schema.core.version import Version

if TYPE_CHECKING:
    from onnxreg.cli.services.export_request import ExportRequest
    from onnxreg.converters.engine.cache import StepCache


def cache_at(root: Path) -> "StepCache":
    """The cache of export steps of the registry in a directory."""
    from onnxreg.converters.engine.cache import StepCache

    return StepCache(root / "local" / "cache")


def show_known(
    session: Session,
    request: "ExportRequest",
    version: Version | None,
    as_json: bool,
    push: str | None = None,
) -> bool:
    """Show what the same request published, if its source and tools are unchanged; else return False.

    If a remote is named, `push` sends the version there.
    """
    from onnxreg.cli.reports.publish_report import unchanged
    from onnxreg.converters.engine.memo import recall_request
    from onnxreg.registry.support.environment import default_root
    from onnxreg.schema.core.ref import Ref

    remembered = recall_request(cache_at(session.registry or default_root()), request.values)
    if remembered is None:
        return False
    from onnxreg.registry.publish.existing import find_existing

    existing = find_existing(session.reader(), remembered.name, remembered.manifest, version)
    if existing is None:
        return False
    ref = Ref(remembered.name, str(existing.version))
    report = partial(
        unchanged, session, ref, remembered.manifest, existing.manifest, existing.states, as_json
    )
    report_and_push(session, ref, push, as_json, report)
    return True
