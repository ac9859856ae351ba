"""`reg diff`: show the changes between two versions."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnxreg.cli import diff_report, versions
from onnxreg.cli.options import REMOTE, Session, argument, flag, option
from onnxreg.cli.output import counted, fold_line, needs, paint, printable, write_bytes, write_file
from onnxreg.registry.log.contents import Release, read_version
from onnxreg.schema.compare.manifests import ManifestDiff
from onnxreg.schema.compare.overview import DiffOverview, overview
from onnxreg.schema.compare.severity import SEVERITIES
from onnxreg.schema.core.errors import GateError, InputError
from onnxreg.schema.core.ref import Ref

EXAMPLES = (
    "reg diff acme/pii-small:1.1.0 acme/pii-small:1.2.0",
    "reg diff acme/pii-small:stable acme/pii-small --html diff.html",
    "reg diff acme/pii-small:stable acme/pii-small --from origin --fail-on breaking,degrading --markdown",
)
NAMED = 3  # kinds of changes that the error of `--fail-on` names


def command(
    session: Session,
    old: str = argument("The version before.", "OLD", models=True),
    new: str = argument("The version after.", "NEW", models=True),
    full: bool = flag("List every change below the screen."),
    html: Path | None = option("Write one self-contained page to this file."),
    as_markdown: bool = flag("Print Markdown.", "--markdown"),
    fail_on: str | None = option(f"Exit status 8 if a change has one of these: {','.join(SEVERITIES)}."),
    source: str | None = option("The registry of OLD, if NEW is in another: a name, path or URL.", "--from"),
    remote: str | None = REMOTE,
) -> None:
    """Compare two versions on one screen: verdict, artifacts, figures, facts, and counts of further changes.

    Changes that follow from other changes are only counted; --full, --markdown and --html list every change. Severities
    are breaking (for an app), degrading (results or evidence), notable and cosmetic: docs/diff.md.

    With --json: {format, format_version, compatible, summary, counts: {severity: n}, changes: [{kind, path, severity,
    artifact?, old, new, message, note?}], overview}, where overview is the screen (its schema is `reg builtin schemas
    diff-overview`). If proofs are on record for the versions, there is a key proofs: {old, new}, with verdicts by path.
    If later evaluations changed states, there is a key attested: {old, new}, with states.
    """
    from onnxreg.registry.system import check_outfile

    gate = [] if fail_on is None else [word.strip() for word in fail_on.split(",")]
    for word in gate:
        if word not in SEVERITIES:
            raise InputError(f"no severity is called {word!r}", f"--fail-on takes {', '.join(SEVERITIES)}")
    if session.as_json and as_markdown:
        raise InputError("stdout takes one of --json and --markdown", "leave one out")
    if html is not None:  # fail before the comparison if the page cannot be written
        with needs("serve", "reg diff --html"):
            from onnxreg.registry.server.pages.rendering import report
        check_outfile(html)
    reader = session.reader(remote)
    old_reader = reader if source is None else session.reader(source)
    before, newer = read_version(old_reader, Ref.parse(old), yanked=True), Ref.parse(new)
    has_both = source is None and newer.name == before.name
    after = read_version(reader, newer, before.log.index if has_both else None, yanked=True)
    changes, screen = overview(before.manifest, after.manifest, (before.states, after.states))
    proofs: dict[str, dict[str, str]] = {
        side: {path: proof.report.verdict for path, proof in versions.proofs(release).items()}
        for side, release in (("old", before), ("new", after))
    }
    attested = {"old": _overruled(before), "new": _overruled(after)}
    document: dict[str, Any] = changes.to_json() | {"overview": screen}
    document |= {"attested": attested} if any(attested.values()) else {}
    document |= {"proofs": proofs} if any(proofs.values()) else {}
    if as_markdown:
        write_bytes(diff_report.markdown(before, after, changes, screen).encode())
    else:
        session.show(
            document,
            diff_report.lines(screen),
            diff_report.doubts_of((before, after)),
            _proof_changes(**proofs),
            _rest(changes, screen, full),
        )
    if html is not None:
        doubts = list(diff_report.doubts_of((before, after)))
        write_file(html.resolve(), report(before, after, changes, screen, doubts))
        if not session.quiet:
            print(f"written to {html}", file=sys.stderr)
    if failed := [change for change in changes.changes if change.severity in gate]:
        kinds = list(dict.fromkeys(change.kind.replace("-", " ") for change in failed))
        first = ", ".join(kinds[:NAMED]) + (", ..." if len(kinds) > NAMED else "")
        raise GateError(
            f"{counted(len(failed), 'change')} that --fail-on {','.join(gate)} refuses: {first}",
            "keep the old version for apps in the field, or take the severity out of --fail-on",
        )


def _overruled(side: Release) -> dict[str, str]:
    return {path: item.state for path, item in side.states.items() if item.state != item.stated}


def _proof_changes(old: dict[str, str], new: dict[str, str]) -> list[str]:
    absent = "not on record"
    return [
        f"proof: {path}: {old.get(path, absent)} -> {new.get(path, absent)}"
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    ]


def _rest(changes: ManifestDiff, screen: DiffOverview, full: bool) -> Iterator[str]:
    if not full:
        if folded := diff_report.folded_line(screen, "--full"):
            yield from ("", fold_line(folded, "  "))
        return
    for severity, count in changes.counts.items():
        if count:
            yield from ("", f"{paint(severity)} ({count})")
            listed = (change.message for change in changes.changes if change.severity == severity)
            yield from (fold_line(f"  {printable(text)}", "      ") for text in listed)
