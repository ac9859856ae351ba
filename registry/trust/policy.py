"""The reader's trust file applied to a model: what must be signed is, and no signature of a known key is wrong."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from onnxreg.registry.disk import host_errors
from onnxreg.registry.history.commit import load, read_ledger
from onnxreg.registry.history.ledger import Ledger, read_line, replay
from onnxreg.registry.home import trust_file
from onnxreg.registry.lookup import Found
from onnxreg.registry.storage import IndexFile, Source
from onnxreg.registry.trust.heads import Heads
from onnxreg.registry.trust.judging import Verdict, judge_lines
from onnxreg.registry.trust.releases import signatures, signatures_of
from onnxreg.schema.errors import IntegrityError, RegError
from onnxreg.schema.events import LogLine
from onnxreg.schema.ref import POLICY_LOG
from onnxreg.schema.trustfile import Requirement, Trust, read_trust

HINT = "reg log shows who signed which line; do not use it until you know why"


def load_trust(path: Path | None = None) -> Trust:
    """What the user trusts: nothing, and no requirement, where there is no trust file. InputError where it is malformed."""
    path = path or trust_file()
    return read_trust_file(path) if path.is_file() else Trust()


def read_trust_file(path: Path) -> Trust:
    """HostError where it cannot be read, InputError where it is malformed."""
    with host_errors(f"reading {path}"):
        return read_trust(path.read_bytes(), str(path))


def enforce(trust: Trust, source: Source, name: str, index: IndexFile) -> None:
    """IntegrityError where the log of a model does not keep what the trust file says of it.

    Nothing is read where the file says nothing of the model. Else the whole log is, and the state must follow from it.
    """
    registry = source.registry_id
    if not trust.required(registry, name) and not any(key.covers(name) for key in trust.keys.values()):
        return
    ledger = read_ledger(source, name, index)
    lines = list(ledger.lines())
    check_lines(trust, registry, name, lines)
    if replay(lines, registry, name, ledger.fetch).encode() != index.data:
        raise IntegrityError(
            f"the state of {name} is not what its log says", "run reg verify to see the extent"
        )


def enforce_policies(trust: Trust, registry: str, index: IndexFile) -> None:
    """IntegrityError where a registry's log of policies is not signed as the trust file says."""
    lines = (read_line(raw, POLICY_LOG) for raw in index.data.removesuffix(b"\n").split(b"\n"))
    check_lines(trust, registry, POLICY_LOG, lines)


def check_lines(trust: Trust, registry: str, name: str, lines: Iterable[LogLine]) -> None:
    """IntegrityError at the first line whose signature is wrong or missing."""
    needs = [each for each in trust.required(registry, name) if each.lines]
    for line, verdict in judge_lines(trust, registry, name, lines):
        if verdict.status == "invalid":
            raise IntegrityError(
                f"the signature of line {line.seq} of {name} is wrong: {verdict.detail}", HINT
            )
        for need in needs:
            if line.seq >= need.since and not _counts(verdict, need):
                raise IntegrityError(
                    f"line {line.seq} of {name} must be signed by a trusted key: {verdict or 'it is unsigned'}",
                    HINT,
                )


def audited(place: Source, heads: Heads, ledger: Ledger, index: IndexFile) -> Iterator[tuple[str, str]]:
    """What `reg verify` says of a model beyond its own consistency: see `verify.Audit`."""
    try:
        _check_head(place, heads, ledger.name, index)
    except RegError as error:
        yield "history", f"{error.message}; {error.hint}"
    yield from audit_signatures(load_trust(), ledger)


def audit_signatures(trust: Trust, ledger: Ledger) -> Iterator[tuple[str, str]]:
    """Every signature of a model that is wrong, and every one that a trust file demands and is missing."""
    try:
        check_lines(trust, ledger.registry, ledger.name, ledger.lines())
        found = list(signatures(ledger, trust))
    except RegError as error:
        yield "signature", error.message
        return
    for each in found:
        if each.verdict.status == "invalid":
            yield (
                "signature",
                f"the signature of {each.version} in line {each.seq} is wrong: {each.verdict.detail}",
            )
    for need in [each for each in trust.required(ledger.registry, ledger.name) if each.versions]:
        good = {each.version for each in found if _counts(each.verdict, need)}
        for version, entry in ledger.entries.items():
            if entry.usable and version not in good:
                yield "signature", f"version {version} is not signed by a trusted key, as it must be"


def _check_head(place: Source, heads: Heads, name: str, index: IndexFile) -> None:
    """Against the known head; where the log grew since the index file was read, against what it is now."""
    try:
        heads.check(place, name, index, heads.recall(place.registry_id, name))
    except IntegrityError:
        before = heads.recall(place.registry_id, name)
        again = place.read_index(name)
        if again == index:
            raise
        heads.check(place, name, again, before)


def _counts(verdict: Verdict, need: Requirement) -> bool:
    return verdict.status == "trusted" and (not need.keys or verdict.key in need.keys)


def require_signed(source: Source, found: Found, trust: Trust | None = None) -> None:
    """IntegrityError where the trust file wants the versions of a model signed, and this one is not."""
    name = found.name
    trust = load_trust() if trust is None else trust
    needs = [each for each in trust.required(source.registry_id, name) if each.versions]
    if not needs:
        return
    ledger, _ = load(source, name)
    verdicts = signatures_of(ledger, trust, found.version, found.entry.manifest)
    for need in needs:
        if not any(_counts(verdict, need) for verdict in verdicts):
            why = "; ".join(dict.fromkeys(str(verdict) for verdict in verdicts)) or "nobody signed it"
            raise IntegrityError(
                f"{found.ref} with manifest {found.entry.manifest.short}... must be signed by a trusted key: {why}",
                "reg verify --signatures lists the signatures",
            )


def who_signed(source: Source, found: Found, trust: Trust | None = None) -> frozenset[str]:
    """The names of the trusted keys that validly signed a version in a registry: its name, number and manifest."""
    trust = load_trust() if trust is None else trust
    verdicts = signatures_of(load(source, found.name)[0], trust, found.version, found.entry.manifest)
    return frozenset(verdict.key for verdict in verdicts if verdict.status == "trusted" and verdict.key)
