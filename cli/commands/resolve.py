"""`reg resolve`: pick the file that an app should load."""

from collections.abc import Iterator, Sequence

from onnxreg.cli.options import DEVICE, MAX_AGE, OFFLINE, REF, REMOTE, Session, flag, option, read_one_device
from onnxreg.cli.output import paint, size, standing, table
from onnxreg.registry.resolution import NoAnswerError, Resolution, resolve
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.query.resolve import Query, Rejection

EXAMPLES = (
    "reg resolve acme/pii-small",
    "reg resolve acme/pii-small:stable --format ort-android --format onnx-int8",
    "reg resolve acme/pii-small --device ort-android-1.23 --certified --max-size 30MB",
    "reg resolve acme/pii-small --device ./pixel.json --min-recall PHONE=0.95 --explain",
    "reg resolve acme/llm --device ./pixel.json --context-tokens 4096",
    "reg resolve acme/pii-small --remote origin --offline --max-age 7d",
)
UNCERTIFIED = "leave out --certified, or certify an artifact: reg export --eval-suite"
MAX_REJECTIONS = 10  # shown without `--explain`


def command(
    session: Session,
    *,
    ref: str = REF,
    query: Query,
    device: str | None = DEVICE,
    remote: str | None = REMOTE,
    offline: bool = OFFLINE,
    max_age: str | None = MAX_AGE,
    seed: str | None = option(
        "Answer as for the device with this seed (64 hex digits), which takes part in rollouts.",
        metavar="HEX",
    ),
    explain: bool = flag("List every artifact that was not chosen, and why."),
    verify: bool = flag("Read the manifest too, and compare the index with it."),
) -> None:
    """Pick one artifact for an app, with the files it needs.

    Without a tag, the newest release with a matching artifact wins. Matching artifacts of one version are compared by
    these properties, in this order, until one artifact is better: it is certified, is not quantized, is not known to be
    slower than full precision on the device, won a search, has a preferred format, is the smaller download
    (docs/resolve.md). If nothing matches, the exit status is 3. The exit status is 8 if a governed channel points to a
    version that was not promoted, or no longer meets the policy.

    With --json: {name, version, manifest, size, artifact: {format, precision, path, digest, size, state, contract?,
    kv_cache?, stated?, speeds?}, files: [{role, path, digest, size, url}], rejected: [{artifact, version, code,
    detail}]}; the outer size is the size of all files. If a later evaluation refused the artifact, stated is the state
    in the manifest. If there are deltas, there is a key deltas: [{new, old, delta, size, url, from?}]. During a
    rollout, there is a key rollout: {to, manifest, percent, salt, seq, where?, in}. If nothing matches, the document
    has the same keys, and nulls.
    """
    target_device = read_one_device(device)
    reader = session.with_max_age(max_age).reader(remote, offline)
    try:
        resolution = resolve(reader, Ref.parse(ref), query, target_device, verify, session.heads(), seed)
    except NoAnswerError as error:
        session.show(error.to_json(), _explain(error.outcome.rejected) if explain else [])
        if query.certified:
            error.hint = "; ".join(filter(None, (error.hint, UNCERTIFIED)))
        raise
    for warning in resolution.warnings:
        session.warn(warning)
    session.show(resolution.to_json(), _lines(resolution, explain))


def _lines(resolution: Resolution, explain: bool) -> Iterator[str]:
    artifact, rejected = resolution.artifact, resolution.outcome.rejected
    doubt = f" by a later evaluation; its manifest says {artifact.stated}" if artifact.stated else ""
    state = f"{paint(standing(artifact))}{doubt}"
    yield f"{resolution.located.ref}  {artifact.format}  {artifact.precision}  {state}"
    yield f"manifest {resolution.located.entry.manifest}"
    yield f"url      {resolution.files[0][1]}"
    if resolution.rollout:
        yield f"rollout  {resolution.rollout}"
    yield ""
    rows = [(file.role, file.path, size(file.size)) for file, _ in resolution.files]
    yield from table(("ROLE", "PATH", "SIZE"), rows)
    if rejected:
        yield from ("", "not chosen:")
        yield from _explain(rejected if explain else rejected[:MAX_REJECTIONS], resolution.located.version)
        if len(rejected) > MAX_REJECTIONS and not explain:
            yield f"and {len(rejected) - MAX_REJECTIONS} more, which --explain lists"


def _explain(rejected: Sequence[Rejection], chosen: Version | None = None) -> Iterator[str]:
    rows = [
        ("" if item.version == chosen else item.version, item.artifact or "", item.code, item.detail)
        for item in rejected
    ]
    return table(("VERSION", "PATH", "CODE", "WHY"), rows)
