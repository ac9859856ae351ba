"""`reg verify`: reading everything again, and repairing what is damaged."""

from collections.abc import Iterable, Iterator, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.completion import complete_ref
from onnxreg.cli.options.shared import Json
from onnxreg.cli.render import output
from onnxreg.schema.core.errors import GateError, HostError, InputError, IntegrityError, RemoteError
from onnxreg.schema.core.ref import Ref

if TYPE_CHECKING:
    from onnxreg.registry.maintain.verification import Damage, VerifyReport
    from onnxreg.registry.store.protocol import RegistryReader

EXAMPLES = (
    "reg verify",
    "reg verify acme/pii-small:1.2.0 --json",
    "reg verify --repair --from /mnt/share/models",
    "reg verify --remote origin",
    "reg verify --signatures acme/pii-small:1.2.0",
    "reg verify --remote s3://models/prod --repair --from /mnt/backup/models",
)


def command(
    session: Session,
    ref: Annotated[
        str | None,
        typer.Argument(help="Only this model or version.", metavar="[REF]", autocompletion=complete_ref),
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Replace damaged files by good copies.")] = False,
    source: Annotated[
        str | None,
        typer.Option(
            "--from", help="The registry with good copies; default: the only remote, or the one named origin."
        ),
    ] = None,
    remote: Annotated[
        str | None,
        typer.Option(
            help="Verify this remote (a name, path or URL); good copies come from here, by default."
        ),
    ] = None,
    signatures: Annotated[
        bool,
        typer.Option("--signatures", help="Only list and check the signatures on versions and evaluations."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Read every byte and every log line again, and list all damage. Remaining damage is exit status 4. If
    something could only not be read (kind unreadable), the exit status is 6 for a remote, else 9.

    With --repair: blobs come from any registry that has them; a log comes only from a mirror, and no line
    that can be read here is lost; an index that differs from its log is rebuilt; a damaged blob that
    nothing refers to is deleted. Files that do not belong in a registry are left alone. A damaged index
    file is saved in this registry's local/damaged.

    With --remote every byte of that registry is fetched. On a web server models are verified by name,
    because it cannot list them.

    History is compared with what you saw before, and signatures with your trust file (`reg trust show`).
    --signatures only lists those on versions and on their later evaluations; an invalid one, or a missing
    one that the trust file demands, is exit status 4. Then with --json: {ok, versions: [{name, version,
    manifest, signatures: [{status, keyid, key, seq}], missing, evaluations: [{artifact, state, status,
    keyid, key, seq}]}]}.

    A governed channel that was moved without a promotion does not resolve. It is listed, not as damage:
    exit status 8.

    With --json: {ok, models, versions, blobs, bytes, unreferenced, damages: [{kind, name, detail, digest?}],
    unpromoted: [{name, detail}]}, after the repair; with --repair also {repaired: [{kind, name, detail,
    digest?}]}.
    """
    if source is not None and not repair:
        raise InputError("--from says where a repair fetches from", "add --repair")
    registry, store = session.with_remote(remote)
    if signatures:
        if repair:
            raise InputError("--signatures repairs nothing", "leave one of --signatures and --repair away")
        from onnxreg.cli.reports import signature_table as listing

        listing.run(session, store or registry.store, ref)
        return
    from onnxreg.registry.maintain import repair as repairing
    from onnxreg.registry.maintain.verification import verify_watched

    repairs: Sequence[Damage] = ()
    target = None if ref is None else Ref.parse(ref)
    place, home = store or registry.store, registry.store
    with session.progress("verifying") as progress:
        if repair:
            has_copies = store is not None and source is None
            copies = home if has_copies else repairing.good_copies(registry.remotes, source)
            report, repairs = repairing.repair(place, copies, registry.heads, target, progress, home)
        else:
            report = verify_watched(place, registry.heads, target, progress)
    repaired = {"repaired": [damage.to_json() for damage in repairs]} if repair else {}
    session.show({**report.to_json(), **repaired}, lines(report, place, repairs))
    damages = _known(report)
    hint = _why_left(damages) if repair else _remedy(damages, remote)
    fail(report, place.url, hint, " left" if repair else "")


def fail(report: "VerifyReport", url: str, hint: str, left: str = "") -> None:
    """The error of the worst fault: IntegrityError for damage; RemoteError or HostError if parts were only not read;
    GateError if a governed channel was moved without a promotion.
    """
    if damages := _known(report):
        raise IntegrityError(f"{output.counted(len(damages), 'damaged part')}{left} in {url}", hint)
    if report.damages:
        unread = output.counted(len(report.damages), "part")
        kind = RemoteError if "://" in url else HostError
        raise kind(
            f"{unread} of {url} could not be read", "each line says why; nothing is known to be damaged"
        )
    if count := len(report.unpromoted):
        raise GateError(
            f"all is intact, and {output.counted(count, 'channel')} {'does' if count == 1 else 'do'} not resolve",
            "promote what it holds, or another version: reg promote NAME:VERSION CHANNEL",
        )


def _known(report: "VerifyReport") -> "list[Damage]":
    """The parts that are known to be damaged; others could not be read."""
    return [damage for damage in report.damages if damage.kind != "unreadable"]


def lines(report: "VerifyReport", store: "RegistryReader", repairs: "Iterable[Damage]" = ()) -> Iterator[str]:
    """Repairs, damage, channels that do not resolve, and how much was read."""
    for heading, damages in (("REPAIRED", repairs), ("DAMAGE", report.damages)):
        rows = [(damage.kind, damage.name, _detail(damage, store)) for damage in damages]
        yield from output.table((heading, "WHERE", "WHAT"), rows)
    yield from output.table(("NOT PROMOTED", "WHY"), [(item.name, item.detail) for item in report.unpromoted])
    counts = ((report.models, "model"), (report.versions, "version"), (report.blobs, "blob"))
    total = ", ".join(output.counted(count, noun) for count, noun in counts)
    outcome = "all intact" if not report.damages else "damaged" if _known(report) else "not all was read"
    yield f"read {total}, {output.size(report.size)}: {outcome}"


def _remedy(damages: "Sequence[Damage]", remote: str | None) -> str:
    """The hint for damage before a repair."""
    if all(damage.kind == "history" for damage in damages):
        return "each line says what to do: no copy repairs a history"
    if all(damage.kind == "gate" for damage in damages):
        return "promote a version that meets the policy: reg promote NAME:VERSION CHANNEL"
    where = f"--remote {quote(remote)} " if remote is not None else ""
    return f"reg verify {where}--repair --from REMOTE fetches good copies"


def _why_left(damages: "Iterable[Damage]") -> str:
    """The hint for damage that a repair leaves."""
    is_log = any(damage.kind in ("index", "log") for damage in damages)
    mirror = "; a mirror restores a log: reg verify --repair --from MIRROR" if is_log else ""
    return f"each line says why it stays{mirror}"


def _detail(damage: "Damage", store: "RegistryReader") -> str:
    """The damage, and what to do if no copy repairs it."""
    if damage.kind != "history":
        return damage.detail
    advice = f"ask its owner; after a backup was restored: reg trust reset {store.registry_id} {damage.name}"
    return f"{damage.detail}; {advice}"
