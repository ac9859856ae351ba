"""`reg doctor`: what may be wrong with a registry, and what to type against it."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxreg.cli import hints
from onnxreg.cli.context import Session
from onnxreg.cli.errors import needs
from onnxreg.cli.options.shared import Json
from onnxreg.cli.render import output
from onnxreg.schema.core.errors import InputError, RegError, RemoteError

if TYPE_CHECKING:
    from onnxreg.registry.conformance.trial import TrialOutcome
    from onnxreg.registry.maintain.doctor import Diagnosis
    from onnxreg.registry.store.protocol import RegistryStore

EXAMPLES = (
    "reg doctor",
    "reg doctor origin",
    "reg doctor --json",
    "reg doctor s3://models/prod --clear gc/condemned/0123456789abcdef",
    "reg doctor s3://models/prod --live",
)
WORST = ("integrity", "conflict", "remote", "not-found", "input", "environment")
"""The families of failures; the exit status is that of the first one that occurs."""


def command(
    context: typer.Context,
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
    live: Annotated[
        bool, typer.Option("--live", help="Try every promise that a registry relies on at this place.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a registry and its surroundings, with a fix for each finding.

    It checks layout, permissions, space, stray files, leftovers of killed commands, remotes and forks, and
    tries locks, renames and compare-and-swap on scratch that is then removed. `reg verify` reads the bytes.
    The exit status is 0 if all is well, otherwise that of the worst finding: 4 integrity, 6 remote, 3 not
    found, 9 environment.

    --clear deletes the note of a dead collection or, in a mirror, of a dead mirroring, leftovers of an
    interrupted trial, or a file that does not belong in a registry, and nothing else. If the owner of the
    note still runs, files that somebody relies on may then be deleted.

    --live creates scratch (a prefix gc/live-... in a bucket, a private repository onnxreg-live-... beside
    one of the Hub, a directory in a registry's local/tmp), tries there every promise that a registry relies
    on (create-only writes, compare-and-swap, races, reads after writes, ranges, checksums, pushes of two
    writers), and removes it. The registry itself is not touched; a bucket need not have one yet. If a
    promise is broken, the exit status is 6.

    With --json: {registry, ok, findings: [{check, ok, detail, fix}]}; fix is empty if there is nothing to
    do. With --live also {scratch}, and each finding has {state}: kept, broken or not applicable. With
    --clear {registry, cleared}.
    """
    from onnxreg.registry.read.remotes import Remotes
    from onnxreg.registry.store.directory.directory import DirectoryRegistry
    from onnxreg.registry.store.open import open_url
    from onnxreg.registry.support.environment import default_root

    session: Session = context.obj
    own = DirectoryRegistry(session.registry or default_root())
    url = own.url if remote is None else Remotes.load(own).url_of(remote)
    if live and clear:
        raise InputError("--live and --clear are two things", "do one after the other")
    if live:
        return _try(session, url)
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
        _tables(session, rows, [(finding.check, hints.text(finding.fix)) for finding in faults])
    if faults:
        raise _failure(faults, store.url)


def _to_json(finding: "Diagnosis | TrialOutcome") -> dict[str, Any]:
    fix = hints.text(finding.fix)
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


def _try(session: Session, url: str) -> None:
    with needs("hf", "a registry on the Hugging Face Hub"):
        from onnxreg.registry.conformance import conformance

        scratch = conformance.scratch_at(url)
    if not session.as_json:
        session.say(f"makes {scratch.description}, and removes it at the end")
        sys.stdout.flush()
    with session.steps() as progress:
        outcomes = conformance.run(scratch, progress)
    broken = [outcome for outcome in outcomes if not outcome.ok]
    if session.as_json:
        documents = [{**_to_json(outcome), "state": outcome.state} for outcome in outcomes]
        output.write_json(
            {"registry": url, "scratch": scratch.description, "ok": not broken, "findings": documents}
        )
    else:
        rows = [(outcome.check, outcome.state, outcome.detail) for outcome in outcomes]
        _tables(session, rows, [(outcome.check, hints.text(outcome.fix)) for outcome in broken])
    if broken:
        checks = ", ".join(outcome.check for outcome in broken)
        raise RemoteError(
            f"{output.counted(len(broken), 'promise')} broken at {url}: {checks}", broken[0].fix
        )
