"""`reg doctor`: what may be wrong with a registry, and what to type against it."""

from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json
from onnxreg.cli.render import output
from onnxreg.schema.core.errors import RegError

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
        from onnxreg.registry.maintain.doctor import clear_leftovers

        cleared = clear_leftovers(store, clear)
        session.show({"registry": store.url, "cleared": cleared}, [f"deleted {path}" for path in cleared])
        return
    from onnxreg.registry.maintain.doctor import examine

    findings = examine(store, url)
    faults = [finding for finding in findings if not finding.ok]
    documents = [
        {"check": item.check, "ok": item.ok, "detail": item.detail, "fix": item.fix} for item in findings
    ]
    rows = [(item.check, "ok" if item.ok else "fail", item.detail) for item in findings]
    session.show(
        {"registry": store.url, "ok": not faults, "findings": documents},
        output.table(("CHECK", "STATE", "WHAT"), rows),
        output.table(("FIX", "TYPE"), [(item.check, item.fix) for item in faults]),
    )
    if faults:
        families = {kind.family: kind for kind in RegError.__subclasses__()}
        worst = min((item.family for item in faults), key=lambda family: [*WORST, family].index(family))
        checks = ", ".join(item.check for item in faults)
        message = f"{output.counted(len(faults), 'finding')} in {store.url}: {checks}"
        raise families[worst](message, faults[0].fix)
