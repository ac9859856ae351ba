"""`reg doctor`: what may be wrong with a registry, and what to type against it."""

from typing import TYPE_CHECKING, Annotated

import typer

from onnxreg.cli import output
from onnxreg.cli.options import Json
from onnxreg.cli.session import Session
from onnxreg.schema.errors import RegError

if TYPE_CHECKING:
    from onnxreg.registry.doctor import Finding

EXAMPLES = ("reg doctor", "reg doctor origin", "reg doctor --json")
WORST = ("integrity", "conflict", "remote", "not-found", "input", "environment")
"""The families of failures, the one first whose exit status stands for all."""


def command(
    context: typer.Context,
    remote: Annotated[
        str | None,
        typer.Argument(help="Look at this remote (a name, path or URL) instead.", metavar="[REMOTE]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Look for what may be wrong with a registry and its surroundings, with a fix for each finding.

    Layout, permissions, space, stray files, what killed commands left, remotes, forks; and probes of locks, renames and
    compare-and-swap on scratch that is gone afterwards. `reg verify` reads the bytes. Exit status 0 where all is well,
    else that of the worst finding: 4 integrity, 6 remote, 3 not found, 9 environment.

    With --json: {registry, ok, findings: [{check, ok, detail, fix}]}; fix is empty where there is nothing to do.
    """
    from onnxreg.registry.backends.local import LocalRemote
    from onnxreg.registry.doctor import examine
    from onnxreg.registry.home import default_root
    from onnxreg.registry.remotes import Remotes, open_url

    session: Session = context.obj
    own = LocalRemote(session.registry or default_root())
    place = own if remote is None else open_url(Remotes.load(own).url_of(remote))
    findings = examine(place)
    bad = [finding for finding in findings if not finding.ok]
    if as_json:
        found = [finding.to_json() for finding in findings]
        output.write_json({"registry": place.url, "ok": not bad, "findings": found})
    else:
        session.table(
            ("CHECK", "STATE", "WHAT"),
            [(finding.check, "ok" if finding.ok else "fail", finding.detail) for finding in findings],
        )
        session.table(("FIX", "TYPE"), [(finding.check, finding.fix) for finding in bad])
    if bad:
        raise _failure(bad, place.url)


def _failure(bad: "list[Finding]", url: str) -> RegError:
    """The error of the worst finding's family."""
    families = {kind.family: kind for kind in RegError.__subclasses__()}
    worst = min((finding.family for finding in bad), key=lambda family: [*WORST, family].index(family))
    checks = ", ".join(finding.check for finding in bad)
    return families[worst](f"{output.counted(len(bad), 'finding')} in {url}: {checks}", bad[0].fix)
