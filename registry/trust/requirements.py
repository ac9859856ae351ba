"""Apply the trust file to a model: required signatures exist, and no signature by a trusted key is wrong."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

from onnxreg.registry.log.log import LocatedVersion, Log
from onnxreg.registry.log.lookup import load, log_of
from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.registry.trust.signatures import (
    SignatureVerdict,
    SignedStatement,
    judge_lines,
    signatures_of,
    signed_statements,
)
from onnxreg.schema.core.errors import IntegrityError, RegError, fault
from onnxreg.schema.core.ref import POLICY_LOG, Version
from onnxreg.schema.gates.policy import PolicyLog, policy_of
from onnxreg.schema.inputs.trust_file import SignatureRequirement, Trust
from onnxreg.schema.log.logline import LogLine

SIGNERS_ADVICE = "reg log shows who signed which line; do not use it until you know why"


def enforce(trust: Trust, reader: RegistryReader, name: str, index: IndexFile) -> None:
    """Raise IntegrityError if the log of a model does not meet the trust file.

    The whole log of just this index file is read. The state must follow from it, except keys that this build does not know.
    """
    log = log_of(reader, name, index).check()
    check_lines(trust, log.registry, name, log.lines())
    log.prove()


def enforce_policies(trust: Trust, log: PolicyLog) -> None:
    """Raise IntegrityError if a registry's log of policies is not signed as the trust file and its policies say, or is missing.

    A policy that names keys counts if lines must be signed, or if the trust file has all these keys, none revoked: a
    reader without them cannot judge the next line.
    """
    if not log.lines and trust.governs(log.registry):
        raise IntegrityError("it has no policy, and must have one", SIGNERS_ADVICE)
    check_lines(trust, log.registry, POLICY_LOG, log.lines)
    is_demanded = any(need.lines for need in trust.required(log.registry, POLICY_LOG))
    valid = {name for key in trust.keys.values() if key.revoked is None for name in (key.name, key.key.id)}
    for named, problem in unauthorized_policies(trust, log.registry, log.lines):
        if is_demanded or named <= valid:
            raise IntegrityError(problem, "ask the registry's owner who set that policy")


def unauthorized_policies(
    trust: Trust, registry: str, lines: Sequence[LogLine]
) -> Iterator[tuple[frozenset[str], str]]:
    """Yield the policies that follow one which names keys (`signed_by`), and that none of these keys signed.

    Each comes with these keys. A key counts here for any model. Raise IntegrityError if a policy cannot be read.
    """
    judged = judge_lines(trust, registry, POLICY_LOG, lines)
    for (before, _), (line, verdict) in pairwise(judged):
        named = policy_of(before).signers
        signers = trust.signers([verdict.keyid or ""] if verdict.status in ("trusted", "foreign") else [])
        if named and not any(named & names for names in signers):
            keys, why = ", ".join(sorted(named)), str(verdict) or "it is unsigned"
            yield (
                named,
                f"policy {line.seq} is not signed by a key that policy {before.seq} names ({keys}): {why}",
            )


def check_lines(trust: Trust, registry: str, name: str, lines: Iterable[LogLine]) -> None:
    """IntegrityError at the first line whose signature is wrong or missing."""
    judged = judge_lines(trust, registry, name, lines)
    needs = [need for need in trust.required(registry, name) if need.lines]
    exempt = {need: _exempt(need, registry, name, [line for line, _ in judged]) for need in needs}
    for line, verdict in judged:
        if verdict.status == "invalid":
            raise IntegrityError(
                f"the signature of line {line.seq} of {name} is wrong: {verdict.detail}", SIGNERS_ADVICE
            )
        if any(line.seq > exempt[need] and not _counts(verdict, need) for need in needs):
            raise IntegrityError(
                f"line {line.seq} of {name} must be signed by a trusted key: {str(verdict) or 'it is unsigned'}",
                SIGNERS_ADVICE,
            )


def _exempt(need: SignatureRequirement, registry: str, name: str, lines: Sequence[LogLine]) -> int:
    """Count the lines at the start of a log that need no signature.

    Raise IntegrityError if the trust file names a line that the log does not have. If it names no line, the last
    line must be signed: it covers all lines before it.
    """
    anchor = need.anchor(registry, name)
    if anchor is None:
        return min(need.since, len(lines)) - 1
    digest = lines[anchor.seq - 1].digest if 0 < anchor.seq <= len(lines) else None
    if digest != anchor.head:
        which = "has no such line" if digest is None else f"has {digest.short}... there"
        raise IntegrityError(
            f"{name} is not the log that the trust file names: line {anchor.seq} must be {anchor.head.short}..., it {which}",
            SIGNERS_ADVICE,
        )
    return anchor.seq


def audit_signatures(trust: Trust, log: Log) -> Iterator[tuple[str, str]]:
    """Yield the signatures of a model that are wrong, and the required ones that are missing."""
    try:
        check_lines(trust, log.registry, log.name, log.lines())
        statements = list(signed_statements(log, trust))
    except RegError as error:
        yield fault("signature", error)
        return
    for item in statements:
        if item.verdict.status == "invalid":
            artifact = item.event.artifact
            subject = f"the evaluation of {artifact.short}..." if artifact else str(item.version)
            yield (
                "signature",
                f"the signature on {subject} in line {item.seq} is wrong: {item.verdict.detail}",
            )
    for version in unsigned(trust, log, statements):
        yield "signature", f"version {version} is not signed by a trusted key, as it must be"


def unsigned(trust: Trust, log: Log, statements: Collection[SignedStatement]) -> list[Version]:
    """List the versions that lack a required signature, given all signatures. Versions that do not resolve need none."""
    good = {
        need: {item.version for item in statements if _counts(item.verdict, need)}
        for need in trust.required(log.registry, log.name)
        if need.versions
    }
    usable = (version for version, entry in log.versions.items() if entry.usable)
    return [version for version in usable if any(version not in signed for signed in good.values())]


def check_copied(log: Log, trust: Trust) -> None:
    """Raise IntegrityError, before a copy, if a log or version is not signed as the trust file demands."""
    if trust.concerns(log.registry, log.name):
        for _, problem in audit_signatures(trust, log):
            raise IntegrityError(f"{log.name} is not copied: {problem}", SIGNERS_ADVICE)


def require_signed(reader: RegistryReader, located: LocatedVersion, trust: Trust) -> None:
    """Raise IntegrityError if the trust file wants the versions of a model signed, and this one is not."""
    needs = [need for need in trust.required(reader.registry_id, located.name) if need.versions]
    if not needs:
        return
    log = load(reader, located.name)
    verdicts = signatures_of(log, trust, located.version, located.entry.manifest)
    if not all(any(_counts(verdict, need) for verdict in verdicts) for need in needs):
        why = "; ".join(dict.fromkeys(str(verdict) for verdict in verdicts)) or "nobody signed it"
        raise IntegrityError(
            f"{located.ref} with manifest {located.entry.manifest.short}... must be signed by a trusted key: {why}",
            "`reg verify --signatures` lists the signatures",
        )


def _counts(verdict: SignatureVerdict, need: SignatureRequirement) -> bool:
    return verdict.status == "trusted" and (not need.keys or verdict.key in need.keys)
