"""`reg verify` and `reg doctor`: check the bytes and signatures of a registry, and its surroundings."""

from collections import Counter
from collections.abc import Iterator
from shlex import quote
from typing import TYPE_CHECKING, Any

from onnxreg.cli.options import REMOTE, Session, argument, flag, option
from onnxreg.cli.output import counted, fields, size, table
from onnxreg.schema.core.errors import FAMILIES, GateError, HostError, InputError, IntegrityError, RemoteError
from onnxreg.schema.core.ref import Ref

if TYPE_CHECKING:
    from onnxreg.registry.maintain import Damage, VerifyReport
    from onnxreg.registry.store.protocol import RegistryReader, RegistryStore

EXAMPLES = (
    "reg verify",
    "reg verify acme/pii-small:1.2.0 --json",
    "reg verify --repair --from /mnt/share/models",
    "reg verify --signatures acme/pii-small:1.2.0",
    "reg verify --remote s3://models/prod --repair --from /mnt/backup/models",
    "reg doctor",
    "reg doctor origin",
    "reg doctor s3://models/prod --clear gc/condemned/0123456789abcdef",
)


def verify(
    session: Session,
    ref: str | None = argument("Only this model or version.", "[REF]", models=True),
    repair: bool = flag("Replace damaged files by good copies."),
    source: str | None = option("Where good copies are; default: the only remote, or origin.", "--from"),
    remote: str | None = REMOTE,
    signatures: bool = flag("Only list and check the signatures on versions and evaluations."),
) -> None:
    """Read every byte and every log line again, and list all damage. Remaining damage is exit status 4.

    If parts cannot be read and no damage was found, the exit status is 6 for a remote and 9 for a local registry. Logs
    are compared with the history that you saw before, and signatures are checked with your trust file. A governed
    channel that was moved without a promotion is exit status 8.

    With --repair: blobs come from any registry that has them; a log comes only from a mirror; an index file that
    differs from its log is rebuilt, after a copy is saved in local/damaged.

    With --json: {ok, models, versions, blobs, bytes, unreferenced, damages: [{kind, name, detail, digest?}],
    unpromoted: [{name, detail}]}, after the repair; with --repair also {repaired: [{kind, name, detail, digest?}]}.
    With --signatures: {ok, versions: [{name, version, manifest, signatures: [{status, keyid, key, seq}], missing,
    evaluations: [{artifact, state, status, keyid, key, seq}]}]}.
    """
    if source is not None and not repair:
        raise InputError("--from says where a repair fetches from", "add --repair")
    registry, store = session.with_remote(remote)
    if signatures:
        if repair:
            raise InputError("--signatures repairs nothing", "leave one of --signatures and --repair away")
        _list_signatures(session, store or registry.store, ref)
        return
    from onnxreg.registry import maintain

    target = None if ref is None else Ref.parse(ref)
    registry_store, home = store or registry.store, registry.store
    with session.progress("verifying") as progress:
        if repair:
            has_copies = store is not None and source is None
            copies = home if has_copies else maintain.good_copies(registry.remotes, source)
            report = maintain.repair(registry_store, copies, registry.heads, target, progress, home)
        else:
            report = maintain.verify(registry_store, registry.heads, target, progress)
    repaired = {"repaired": [damage.to_json() for damage in report.repaired]} if repair else {}
    session.show({**report.to_json(), **repaired}, lines(report, registry_store))
    kinds = {damage.kind for damage in _known(report)}
    hint = f"reg verify {f'--remote {quote(remote)} ' if remote else ''}--repair --from REMOTE fetches good copies"
    if repair:
        mirror = "; a mirror restores a log: reg verify --repair --from MIRROR"
        hint = f"each line says why it stays{mirror if kinds & {'index', 'log'} else ''}"
    elif kinds == {"history"}:
        hint = "each line says what to do: no copy repairs a history"
    elif kinds == {"gate"}:
        hint = PROMOTE
    fail(report, registry_store.url, hint, " left" if repair else "")


PROMOTE = "promote a version that meets the policy: reg promote NAME:VERSION CHANNEL"


def fail(report: "VerifyReport", url: str, hint: str, left: str = "") -> None:
    """Raise the error for the faults in a report. Do nothing if there are no faults.

    The error is IntegrityError if there is damage, RemoteError or HostError if parts could not be read, and GateError
    if a governed channel was moved without a promotion.
    """
    if damages := _known(report):
        raise IntegrityError(f"{counted(len(damages), 'damaged part')}{left} in {url}", hint)
    if report.damages:
        message = f"{counted(len(report.damages), 'part')} of {url} could not be read"
        kind = RemoteError if "://" in url else HostError
        raise kind(message, "each line says why; nothing is known to be damaged")
    if count := len(report.unpromoted):
        verb = "does" if count == 1 else "do"
        raise GateError(f"all is intact, and {counted(count, 'channel')} {verb} not resolve", PROMOTE)


def _known(report: "VerifyReport") -> "list[Damage]":
    return [damage for damage in report.damages if damage.kind != "unreadable"]


def lines(report: "VerifyReport", store: "RegistryReader") -> Iterator[str]:
    """Yield lines about repairs, damage, channels that do not resolve, and the number of bytes read."""
    advice = f"ask its owner; after a backup was restored: reg trust reset {store.registry_id}"
    for heading, damages in (("REPAIRED", report.repaired), ("DAMAGE", report.damages)):
        rows = []
        for item in damages:
            reset = f"; {advice} {item.name}" if item.kind == "history" else ""
            rows.append((item.kind, item.name, f"{item.detail}{reset}"))
        yield from table((heading, "WHERE", "WHAT"), rows)
    yield from table(("NOT PROMOTED", "WHY"), [(item.name, item.detail) for item in report.unpromoted])
    counts = ((report.models, "model"), (report.versions, "version"), (report.blobs, "blob"))
    total = ", ".join(counted(count, noun) for count, noun in counts)
    outcome = "all intact" if not report.damages else "damaged" if _known(report) else "not all was read"
    yield f"read {total}, {size(report.size)}: {outcome}"


def _list_signatures(session: Session, reader: "RegistryReader", ref: str | None) -> None:
    from onnxreg.registry.log.log import load
    from onnxreg.registry.trust.known_heads import load_trust
    from onnxreg.registry.trust.signatures import signed_statements, unsigned_versions

    trust, documents, rows = load_trust(), list[dict[str, Any]](), list[tuple[str, ...]]()
    for target in map(Ref.parse, [ref] if ref else reader.names()):
        log = load(reader, target.name)
        only = None if target.is_bare else log.find(target, yanked=True, gone=True).version
        statements = list(signed_statements(log, trust))
        missing = unsigned_versions(trust, log, statements)
        for version, entry in log.versions.items():
            if only not in (None, version):
                continue
            signs = [item for item in statements if item.version == version]
            of_manifest = (item for item in statements if item.event.manifest == entry.manifest)
            later = [item for item in of_manifest if item.version is None]
            cells: list[tuple[str, str, str]]
            cells = [(item.subject, item.verdict.status, str(item.verdict)) for item in signs]
            cells += [("version", "missing", "a trusted key must sign it")] if version in missing else []
            cells = cells or [("version", "unsigned", "")]
            cells += [(item.subject, item.verdict.status, str(item.verdict)) for item in later]
            rows += [(f"{log.name}:{version}", entry.manifest.short, *row) for row in cells]
            documents.append(
                {"name": log.name, "version": version, "manifest": entry.manifest}
                | {"signatures": [item.to_json() for item in signs], "missing": version in missing}
                | {"evaluations": [item.to_json() for item in later]}
            )
    statuses = Counter(row[3] for row in rows)
    session.show(
        {"ok": not statuses["invalid"] and not statuses["missing"], "versions": documents},
        table(("VERSION", "MANIFEST", "SIGNED", "SIGNATURE", "BY"), sorted(rows)),
        None if rows else "there are no versions yet",
    )
    if count := statuses["invalid"]:
        message = f"{counted(count, 'signature')} {'is' if count == 1 else 'are'} invalid"
        raise IntegrityError(message, "do not use these versions until you know why")
    if count := statuses["missing"]:
        lack = f"{counted(count, 'version')} {'lacks' if count == 1 else 'lack'} a signature"
        hint = "`reg trust show` lists what must be signed; `reg sign` signs"
        raise IntegrityError(f"{lack} that your trust file demands", hint)


# Worst first. The worst family among the findings sets the exit status.
WORST = ("integrity", "conflict", "remote", "not-found", "input", "environment")


def doctor(
    session: Session,
    remote: str | None = argument("Check this remote (a name, path or URL).", "[REMOTE]"),
    clear: list[str] | None = option(
        "Delete exactly this file, which a finding named. If it is a note, you state that the process that wrote it is dead.",
        metavar="PATH",
    ),
) -> None:
    """Check a registry and its surroundings, and suggest a fix for each finding.

    Without --clear nothing is changed. The worst finding sets the exit status. From worst to least bad, it is 4 for
    integrity, 5 for a conflict, 6 for a remote, 3 for something that is not found, 2 for wrong input, and 9 for the
    environment.

    --clear deletes a file that does not belong in a registry, or the note of a running `reg gc` or `reg mirror`. Clear
    a note only if its process is dead: otherwise files that somebody relies on may be deleted.

    With --json: {registry, ok, findings: [{check, ok, detail, fix}]}; fix may be empty. With --clear {registry,
    cleared}.
    """
    from onnxreg.registry.maintain import clear_leftovers, examine
    from onnxreg.registry.remotes import open_url

    remotes = session.remotes()
    url = remotes.registry.url if remote is None else remotes.url_of(remote)
    store: RegistryStore = remotes.registry if remote is None else open_url(url)
    if clear:
        clear_leftovers(store, clear)
        session.show({"registry": store.url, "cleared": clear}, [f"deleted {path}" for path in clear])
        return
    findings = examine(store, url)
    faults = [finding for finding in findings if not finding.ok]
    rows = [(item.check, "ok" if item.ok else "fail", item.detail) for item in findings]
    session.show(
        {"registry": store.url, "ok": not faults}
        | {"findings": [fields(item, "check ok detail fix") for item in findings]},
        table(("CHECK", "STATE", "WHAT"), rows),
        table(("FIX", "TYPE"), [(item.check, item.fix) for item in faults]),
    )
    if faults:
        worst = min((item.family for item in faults), key=lambda family: [*WORST, family].index(family))
        checks = ", ".join(item.check for item in faults)
        raise FAMILIES[worst](f"{counted(len(faults), 'finding')} in {store.url}: {checks}", faults[0].fix)
