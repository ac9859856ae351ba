"""`reg doctor`: what may be wrong with a registry, and what to type against it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json
from onnxreg.cli.render import output
from onnxreg.schema.core.errors import RegError

if TYPE_CHECKING:
    from onnxreg.registry.maintain.doctor import Diagnosis
    from onnxreg.registry.store.protocol import RegistryStore

EXAMPLES = (
    "reg doctor",
    "reg doctor origin",
    "reg doctor --json",
    "reg doctor s3://models/prod --clear gc/condemned/0123456789abcdef",
)
WORST = ("integrity", "conflict", "remote", "not-found", "input", "environment", "gate")
"""The families of failures; the exit status is that of the first one that occurs."""


def command(
    session: Session,
    remote: Annotated[
        str | None,
        typer.Argument(help="Check this remote (a name, path or URL).", metavar="[REMOTE]"),
    ] = None,
    clear: Annotated[
        list[str] | None,
        typer.Option(
            help="Delete exactly this file, which a finding named; for a note, you state that its owner is dead.",
            metavar="PATH",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a registry and its surroundings, with a fix for each finding.

    It checks layout, permissions, space, stray files, leftovers of killed commands, remotes and forks, and
    tries locks, renames and compare-and-swap on scratch that is then removed. `reg verify` reads the bytes.
    If the registry has a policy, each governed channel must hold a version that it lets in. The exit status
    is 0 if all is well, otherwise that of the worst finding: 4 integrity, 6 remote, 3 not found, 9
    environment, 8 a channel.

    --clear deletes the note of a dead collection or, in a mirror, of a dead mirroring, or a file that does
    not belong in a registry, and nothing else. If the owner of the note still runs, files that somebody
    relies on may then be deleted.

    With --json: {registry, ok, findings: [{check, ok, detail, fix}]}; fix is empty if there is nothing to
    do. With --clear {registry, cleared}.
    """
    from onnxreg.registry.read.remotes import Remotes
    from onnxreg.registry.store.directory.directory import DirectoryRegistry
    from onnxreg.registry.store.open import open_url
    from onnxreg.registry.support.environment import default_root

    own = DirectoryRegistry(session.registry or default_root())
    url = own.url if remote is None else Remotes.load(own).url_of(remote)
    store = own if remote is None else open_url(url)
    if clear:
        return _clear(session, store, clear)
    _examine(session, store, url)


def _examine(session: Session, store: "RegistryStore", url: str) -> None:
    from onnxreg.registry.maintain.doctor import examine

    findings = examine(store, url)
    faults = [finding for finding in findings if not finding.ok]
    if session.as_json:
        documents = [_to_json(finding) for finding in findings]
        output.write_json({"registry": store.url, "ok": not faults, "findings": documents})
    else:
        rows = [(finding.check, "ok" if finding.ok else "fail", finding.detail) for finding in findings]
        _tables(session, rows, [(finding.check, finding.fix) for finding in faults])
    if faults:
        raise _failure(faults, store.url)


def _to_json(finding: "Diagnosis") -> dict[str, Any]:
    fix = finding.fix
    return {"check": finding.check, "ok": finding.ok, "detail": finding.detail, "fix": fix}


def _tables(session: Session, rows: Sequence[Sequence[str]], fixes: Sequence[Sequence[str]]) -> None:
    session.table(("CHECK", "STATE", "WHAT"), rows)
    session.table(("FIX", "TYPE"), fixes)


def _failure(faults: "list[Diagnosis]", url: str) -> RegError:
    """The error of the worst finding's family."""
    families = {kind.family: kind for kind in RegError.__subclasses__()}
    worst = min((finding.family for finding in faults), key=lambda family: [*WORST, family].index(family))
    checks = ", ".join(finding.check for finding in faults)
    return families[worst](f"{output.counted(len(faults), 'finding')} in {url}: {checks}", faults[0].fix)


def _clear(session: Session, store: "RegistryStore", paths: Sequence[str]) -> None:
    from onnxreg.registry.maintain.doctor import clear_leftovers

    cleared = clear_leftovers(store, paths)
    if session.as_json:
        output.write_json({"registry": store.url, "cleared": cleared})
    else:
        session.say(*(f"deleted {path}" for path in cleared))
