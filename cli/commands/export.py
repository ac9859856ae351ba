"""`reg export`: make a published version from a trained checkpoint."""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import onnxreg.converters.request as requests
from onnxreg.cli.commands.transfer import report_transfer, to_json
from onnxreg.cli.options import (
    ALLOW_CODE,
    DESCRIPTION,
    LICENSE,
    OUTPUT,
    VERSION,
    Session,
    argument,
    flag,
    option,
    pairs,
)
from onnxreg.cli.output import counted, needs, prefix_outcome, resumable, size, table
from onnxreg.cli.services import publish
from onnxreg.cli.versions import report_published, searched
from onnxreg.schema.core.errors import InputError, RegError
from onnxreg.schema.core.ref import Ref, Version

if TYPE_CHECKING:
    from onnxreg.converters.evaluation.latency import LatencyTable
    from onnxreg.registry.log.contents import Release
    from onnxreg.registry.registry import Registry
    from onnxreg.registry.transfer.exchange import TransferResult

EXAMPLES = (
    "reg export ./checkpoint --quantize --name acme/model",
    "reg export acme/pii-small@main --profile android --eval-suite golden.jsonl --output ./mobile",
    "reg export ./checkpoint --profile android --eval-suite golden.jsonl --dry-run",
    "reg export ./checkpoint --profile android --certify --eval-suite choose.jsonl --confirm-suite confirm.jsonl",
    "reg export ./checkpoint --task pooling --quantize --name acme/minilm",
    "reg export model.onnx --quantize --eval-suite rows.npz --name acme/minilm",
    "reg export ./checkpoint --profile android --name acme/pii-small --push s3://models/prod",
    "reg export ./checkpoint --task pooling --name acme/minilm --license MIT --description 'Vectors of sentences'",
    "reg export ./checkpoint --recipe recipe.yaml --name acme/minilm",
    "reg export --recipe family.yaml",
    "reg export --batch jobs.yaml --jobs 4 --push s3://models/prod",
    "reg export --batch jobs.yaml --scheduler tcp://10.0.0.5:8786 --push s3://models/prod",
    "reg export net.py:build --checkpoint best.pth --recipe orchard.yaml --name acme/digits",
)


def command(
    session: Session,
    source: str | None = argument(
        "A checkpoint directory, a hub id with optional @revision, an .onnx file, or module:function.",
        "[SOURCE]",
    ),
    profile: str | None = option("A built-in recipe: see `reg builtin profiles`."),
    task: str | None = option(
        "The outputs of the graph, such as pooling. A name of another library (embeddings, ner) is accepted too: see docs/tasks.md."
    ),
    recipe: Path | None = option("A recipe of your own (YAML or JSON)."),
    checkpoint: Path | None = option(
        "The file of the weights, if SOURCE is a function that makes the module."
    ),
    name: str | None = option("The model's name; default: the hub id."),
    license: str | None = LICENSE,
    description: str | None = DESCRIPTION,
    version: Version | None = VERSION,
    output: Path | None = OUTPUT,
    push: str | None = option(
        "Also push the version to this remote (a name, path or URL), which may be new.", metavar="REMOTE"
    ),
    opset: int | None = option("The ONNX opset, 7 to 23; default 14, android 18."),
    quantize: bool = flag("Also make an INT8 artifact of a task."),
    no_int8: bool = flag("Make no INT8 artifact."),
    int8_embeddings: bool = flag("With INT8, also quantize the embedding tables, to a quarter of the bytes."),
    max_seq_length: int | None = option("The maximum length of a sequence in tokens."),
    eval_suite: Path | None = option("Judge artifacts of low precision on a suite (docs/certification.md)."),
    item_scores: bool = flag("Publish the scores of single items too, as sorted numbers without texts."),
    label_map: list[str] | None = option(
        "Compare gold spans of this label with this label of the model; GOLD= excludes the gold label. May be repeated. The map is recorded.",
        metavar="GOLD=LABEL",
    ),
    margin: bool = flag("Certify only if the whole interval of the loss is below the limit."),
    certify: bool = flag("Search for the smallest artifact that passes on the evaluation suite."),
    confirm_suite: Path | None = option(
        "With --certify: judge the winner once on this suite; default: one half of the evaluation suite."
    ),
    candidate: list[str] | None = option(
        "With --certify: try this candidate (repeatable); default: all of docs/certification.md.",
        metavar="NAME",
    ),
    objective: str | None = option(
        "With --certify: fast-enough (the default: the fewest bytes at 1.1 or less of the latency in full precision), bytes or latency."
    ),
    calibration: Path | None = option(
        "With --certify: rows (.npz) to calibrate static INT8. Without them, static INT8 is not tried."
    ),
    min_gold_chars: int | None = option("Do not judge a label with fewer gold characters."),
    min_parent_recall: float | None = option(
        "Do not judge a label if the checkpoint's own recall, minus its false-alarm rate, is lower."
    ),
    trust_remote_code: bool = flag("Run a transformers checkpoint's own code; recorded."),
    allow_code: list[str] | None = ALLOW_CODE,
    dry_run: bool = flag("Make and judge the artifacts, and publish nothing."),
    no_cache: bool = flag("Run every step, and store nothing in the cache."),
    timeout: float = option(
        "End the export if a step takes longer; 0: no limit.",
        default=30.0,
        min=0,
        max=10**4,
        metavar="MINUTES",
    ),
    batch: Path | None = option("Run every export in this job file (YAML)."),
    jobs: int | None = option(
        "With --batch: the number of processes; default: as many as cores and memory allow.", min=1
    ),
    scheduler: str | None = option("With --batch: run on this scheduler's Dask cluster.", metavar="ADDRESS"),
) -> None:
    """Export a checkpoint for a task, or by a profile or a recipe; measure the results and publish them.

    If a version with the same manifest exists, only --version makes a new version. An artifact whose verdict is refused
    or unknown is still published, with this verdict. See docs/tasks.md, docs/recipes.md, docs/vision.md; a recipe with
    the key `family` is a model family (docs/families.md).

    Code runs only if you name it, in SOURCE (module:function or file.py:function) or in --allow-code.

    With --batch, many exports run at once, and a failed export does not stop the others. The exit status is that of the
    failures, or 7 if their statuses differ (docs/fleets.md). If --push fails, the version stays published here.

    With --json: {ref, name, version, digest, manifest, states, yanked, output}. manifest is the whole manifest. states
    maps a file's path to its certification state. yanked is null or {version, reason}. With --dry-run also {dry_run:
    true}. If something was timed also {latency: [{graphs, p50_ms, p95_ms, runs, threads, cpu, input?, parent?, ratio?,
    interval?}]}; ratio is relative to the parent. With --push also {pushed: {ref, remote, events, blobs, bytes,
    output}}; pushed is null if the push failed. With --batch: {jobs: [{row, job, status, ref, digest, pushed, seconds,
    error: {family, message, hint}, note}], succeeded, failed, stopped}; status is published, current, failed or
    stopped.
    """
    arguments = locals() | {"int8": not no_int8}
    given = {key: arguments[key] for key in requests.OPTIONS if arguments[key] not in (None, [])}
    given = {key: value for key, value in given.items() if value is not (key in requests.ON_BY_DEFAULT)}
    if label_map:
        labels = pairs(label_map, "--label-map GOLD=LABEL", "GOLD= excludes the label", empty=True)
        given["label_map"] = {gold: label or None for gold, label in labels}
    if dry_run:
        _refuse("--dry-run", {"push": push, "output": output, "batch": batch}, "leave one out")
    if batch is not None:
        from onnxreg.cli.batch import run

        alone = {"source": source, "name": name, "profile": profile, "task": task, "recipe": recipe}
        alone |= {"version": version, "output": output, **given}
        _refuse("--batch", alone, "say it in the job file, row by row")
        run(session, batch, jobs, scheduler, push, trust_remote_code, allow_code or (), no_cache, timeout)
        return
    for key, value in (("jobs", jobs), ("scheduler", scheduler)):
        if value is not None:
            raise InputError(f"--{key} goes with --batch", "name a job file: --batch FILE")
    if source is not None and not (profile or task or recipe):
        from onnxreg.converters.tasks.task_catalog import choose

        task, reason = choose(source)
        session.warn(f"task {task}: {reason}")
    from onnxreg.converters.tasks.code import Consent

    consent = Consent.of(allow_code or (), source)
    request = requests.ExportRequest(source, name, profile, recipe, task, given, trust_remote_code, consent)
    if push is not None:
        session.remotes().url_of(push)  # fail before the export, which may take an hour
    target = output and session.check_target(output)
    with needs("onnx" if task == "onnx" else "export", "reg export"):
        requests.prepare_process()
        plan = request.plan()
        for message in plan.warnings():
            session.warn(f"warning: {message}")
        registry = session.open(create=None)
        with session.steps() as progress:
            published, tables = publish(registry, plan, version, progress, not no_cache, dry_run, timeout)
    more: dict[str, Any] = {"latency": [item for one in tables for item in one.to_json()]} if tables else {}
    measured = (_latencies(tables), searched(published, tables) if tables else ())
    last, more = _slower(published, tables), more | ({"dry_run": True} if dry_run else {})
    if target is not None:
        outcome = f"published {published.ref}" if published.new else f"nothing new: this is {published.ref}"
        with prefix_outcome(outcome):
            registry.write_out(Ref(published.name, digest=published.digest), target)
    report = partial(report_published, session, published, target, measured, last, is_preview=dry_run)
    if push is None:
        report(**more)
    elif session.as_json:
        pushed = None
        try:
            result, url = _push(session, registry, published.ref, push)
            pushed = to_json(str(published.ref), result, remote=url, output=None)
        finally:
            report(**more, pushed=pushed)
    else:
        report(**more)
        begun = time.monotonic()
        result, url = _push(session, registry, published.ref, push)
        session.say("")
        report_transfer(session, "pushed", result, url, begun)


def _push(session: Session, registry: "Registry", ref: Ref, remote: str) -> "tuple[TransferResult, str]":
    """Push a version. Return the result and the remote's URL. An error also says which version is published here."""
    try:
        with resumable(), session.progress(f"pushing {ref}") as progress:
            return registry.push(ref, remote, progress), registry.remotes.url_of(remote)
    except RegError as error:
        error.message = f"{ref} is published here, but not pushed: {error.message}"
        error.hint = "; ".join(filter(None, (error.hint, f"to try again: reg push {ref} {quote(remote)}")))
        raise


def _refuse(option: str, others: Mapping[str, object], hint: str) -> None:
    for key, value in others.items():
        if value is not None:
            other = "SOURCE" if key == "source" else requests.flag(key)
            raise InputError(f"{option} and {other} contradict each other", hint)


def _latencies(tables: "Sequence[LatencyTable]") -> Iterator[str]:
    for one in tables:
        threads, timed = counted(one.benchmark.threads, "thread"), []
        for item in one.latencies:
            if item.ratio is None:
                graphs, rows = " + ".join(item.paths), "one row" if item.rows == 1 else f"{item.rows} rows"
                yield f"latency: p50 {item.median:g} ms, p95 {item.p95:g} ms: {graphs} ({rows}, {threads})"
            else:
                ratio = "{:.2f} ({:.2f} to {:.2f})".format(*item.ratio)
                timed.append((*item.paths, item.input, f"{item.median:.3g} ms", ratio))
        yield from table(("LATENCY", "INPUT", f"MEDIAN, {threads}", "PARENT = 1"), timed)


def _slower(release: "Release", tables: "Sequence[LatencyTable]") -> Iterator[str]:
    sizes = {item.path: item.own_size for item in release.manifest.artifacts}
    timed = [item for one in tables for item in one.latencies]
    ratios = sorted((item.ratio, item.paths[0], item.parent) for item in timed if item.ratio is not None)
    for path, (ratio, parent) in {path: (ratio, parent) for ratio, path, parent in ratios}.items():
        if ratio.is_slow:
            saved = sizes.get(parent, 0) - sizes[path]
            gain = f", for {size(saved)} less" if saved > 0 else ""
            yield f"warning: {path} is {ratio.value:.2f} times as slow as {parent}{gain}"
        elif ratio.is_noisy:
            yield f"note: this machine is too busy to say if {path} is slower than {parent}"
