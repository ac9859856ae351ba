"""`reg export`: from a trained checkpoint to a published version."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.errors import needs
from onnxreg.cli.options.completion import complete_remote
from onnxreg.cli.options.shared import AllowCode, DescriptionOption, License, NewVersion, Output, wants_deltas
from onnxreg.cli.reports.publish_report import report_preview, report_published, write_out
from onnxreg.cli.services.export_service import offer_deltas_of, publish, report_and_push
from onnxreg.converters.request import ON_BY_DEFAULT, OPTIONS, ExportRequest, flag, prepare_process
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version

EXAMPLES = (
    "reg export ./checkpoint --profile android --name acme/pii-small",
    "reg export acme/pii-small@main --profile android --eval-suite golden.jsonl --output ./mobile",
    "reg export ./checkpoint --profile android --eval-suite golden.jsonl --dry-run",
    "reg export ./checkpoint --profile android --certify --eval-suite choose.jsonl --confirm-suite confirm.jsonl",
    "reg export ./checkpoint --task pooling --quantize --name acme/minilm",
    "reg export model.onnx --quantize --eval-suite texts.jsonl --name acme/minilm",
    "reg export ./checkpoint --profile android --name acme/pii-small --push s3://models/prod",
    "reg export ./checkpoint --task pooling --name acme/minilm --license MIT --description 'Vectors of sentences'",
    "reg export ./checkpoint --recipe recipe.yaml --name acme/minilm",
    "reg export --recipe family.yaml",
    "reg export --batch jobs.yaml --jobs 4 --to s3://models/prod",
    "reg export --batch jobs.yaml --scheduler tcp://10.0.0.5:8786 --to s3://models/prod",
    "reg export ./run --recipe orchard.yaml --allow-code net.py:build --name acme/digits",
    "reg export net.py:build --checkpoint best.pth --recipe orchard.yaml --name acme/digits",
)


def command(
    session: Session,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="A checkpoint directory, a hub id with optional @revision, an .onnx file, or module:function.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="A built-in recipe: see `reg builtin profiles`.", show_default=False)
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="The outputs of the graph, such as pooling, also by a name of another library (embeddings, ner): see docs/tasks.md.",
            show_default=False,
        ),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="A recipe of your own (YAML or JSON).", show_default=False)
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="The weights, if the source makes the module.", show_default=False)
    ] = None,
    name: Annotated[str | None, typer.Option(help="The model's name; default: the hub id.")] = None,
    license: License = None,
    description: DescriptionOption = None,
    version: NewVersion = None,
    output: Output = None,
    push: Annotated[
        str | None,
        typer.Option(
            help="Also push the version to this remote (a name, path or URL), new or not.",
            metavar="REMOTE",
            autocompletion=complete_remote,
        ),
    ] = None,
    opset: Annotated[
        int | None, typer.Option(help="The ONNX opset, 7 to 23; default 14, android 18.")
    ] = None,
    quantize: Annotated[
        bool, typer.Option("--quantize", help="Also make an INT8 artifact of a task.")
    ] = False,
    int8: Annotated[
        bool, typer.Option(" /--no-int8", help="Make no INT8 artifact.", show_default=False)
    ] = True,
    int8_embeddings: Annotated[
        bool,
        typer.Option(
            "--int8-embeddings",
            help="With INT8, also quantize the embedding tables, to a quarter of their bytes.",
        ),
    ] = False,
    rewrite: Annotated[
        bool,
        typer.Option(" /--no-rewrite", help="Keep every node as the exporter made it.", show_default=False),
    ] = True,
    max_seq_length: Annotated[int | None, typer.Option(help="The longest sequence, in tokens.")] = None,
    eval_suite: Annotated[
        Path | None,
        typer.Option(help="Judge the artifacts of low precision on this suite: see docs/certification.md."),
    ] = None,
    item_scores: Annotated[
        bool,
        typer.Option(
            "--item-scores", help="Publish the scores of single items too, as sorted numbers without texts."
        ),
    ] = False,
    label_map: Annotated[
        list[str] | None,
        typer.Option(
            help="Judge gold of this label by a label of the model (repeatable); GOLD= excludes it. Recorded.",
            metavar="GOLD=LABEL",
        ),
    ] = None,
    margin: Annotated[
        bool,
        typer.Option("--margin", help="Certify only if the whole interval of the loss is below the limit."),
    ] = False,
    certify: Annotated[
        bool,
        typer.Option(
            "--certify", help="Search for the smallest artifact that passes on the evaluation suite."
        ),
    ] = False,
    confirm_suite: Annotated[
        Path | None,
        typer.Option(
            help="With --certify: judge the winner once on this suite; default: half of the evaluation suite."
        ),
    ] = None,
    candidate: Annotated[
        list[str] | None,
        typer.Option(
            help="With --certify: try this candidate (repeatable); default: all of docs/certification.md.",
            metavar="NAME",
        ),
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="With --certify: bytes (the default), or latency on this machine.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="With --certify: rows (.npz) to calibrate static INT8 with; without them it is not tried."
        ),
    ] = None,
    min_gold_chars: Annotated[
        int | None, typer.Option(help="Do not judge a label with fewer gold characters.")
    ] = None,
    min_parent_recall: Annotated[
        float | None,
        typer.Option(
            help="Do not judge a label if the checkpoint's own recall, minus its false-alarm rate, is lower."
        ),
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run a transformers checkpoint's own code; recorded.")
    ] = False,
    allow_code: AllowCode = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Make and judge the artifacts, and publish nothing.")
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Run every step, and store nothing in the cache.")
    ] = False,
    batch: Annotated[
        Path | None, typer.Option(help="Run every export in this job file (YAML).", show_default=False)
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="With --batch: the number of processes; default: as many as cores and memory allow.", min=1
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="With --batch: run on the Dask cluster whose scheduler is at ADDRESS.", metavar="ADDRESS"
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="With --batch: the same as --push.", metavar="REMOTE")
    ] = None,
) -> None:
    """Export a checkpoint for a task, or by a profile or a recipe; measure the results and publish them.

    Steps that an earlier export ran are not run again. If a version has the same manifest, nothing is published
    without --version. An artifact that is refused or unknown is published with that verdict. See docs/tasks.md,
    docs/recipes.md, docs/vision.md; a recipe with the key `family` is a model family (docs/families.md).

    Code runs only if you name it: SOURCE as module:function or file.py:function, or --allow-code.

    With --batch, many exports run at once, and a failed one does not stop the others. The exit status is that of the
    failures, or 7 if they have several (docs/fleets.md). If --push fails, the version stays published here.

    With --json: {ref, name, version, digest, manifest, states, yanked, output}; manifest is the document, states by
    path, yanked is null or {version, reason}; with --dry-run also {dry_run: true}; for a family also {latency:
    [{graphs, p50_ms, p95_ms, runs, threads, cpu}]}; with --push also {pushed: {ref, remote, events, blobs, bytes,
    output}}, null if the push failed. With --batch: {jobs: [{row, job, status, ref, digest, pushed, seconds, error:
    {family, message, hint}, note}], succeeded, failed, stopped}; status is published, current, failed or stopped.
    """
    arguments = locals()
    given = {key: arguments[key] for key in OPTIONS if arguments[key] not in (None, [])}
    given = {key: value for key, value in given.items() if value is not (key in ON_BY_DEFAULT)}
    if label_map:
        given["label_map"] = _read_label_map(label_map)
    if push is not None and to is not None:
        raise InputError(f"two remotes are named: {push} and {to}", "leave --to away")
    if dry_run:
        _refuse("--dry-run", {"push": push, "output": output, "batch": batch, "to": to}, "leave one out")
    if batch is not None:
        from onnxreg.cli.batch.run_batch import Batch, run

        alone = {"source": source, "name": name, "profile": profile, "task": task, "recipe": recipe}
        alone |= {"version": version, "output": output, **given}
        _refuse("--batch", alone, "say it in the job file, row by row")
        code = tuple(allow_code or ())
        run(session, Batch(batch, jobs, scheduler, push or to, trust_remote_code, code, no_cache))
        return
    for key, value in (("jobs", jobs), ("scheduler", scheduler), ("to", to)):
        if value is not None:
            raise InputError(f"--{key} goes with --batch", "name a job file: --batch FILE")
    if source is not None and not (profile or task or recipe) and Path(source).suffix == ".onnx":
        task = "onnx"
    request = ExportRequest(
        source, name, profile, recipe, task, given, trust_remote_code, allow_code or (), is_typed=True
    )
    new_version = None if version is None else Version.parse(version)
    deltas = wants_deltas()
    if push is not None:
        session.remotes().url_of(push)  # an impossible remote fails before an export that may take an hour
    if output is not None:
        output = session.check_target(output)
    with needs("onnx" if task == "onnx" else "export", "reg export"):
        prepare_process()
        plan = request.plan()
        for message in plan.warnings():
            session.warn(f"warning: {message}")
        registry = session.open(create=None)
        with session.steps() as progress:
            published, latency = publish(registry, plan, new_version, progress, not no_cache, dry_run)
    if dry_run:
        report_preview(session, published)
        return
    write_out(registry, published, output)
    report_and_push(
        session, published.ref, push, partial(report_published, session, published, output, latency)
    )
    offer_deltas_of(session, registry, published, deltas)


def _refuse(option: str, others: Mapping[str, object], hint: str) -> None:
    """Raise InputError for the first of the other options that is set."""
    for key, value in others.items():
        if value is not None:
            other = "SOURCE" if key == "source" else flag(key)
            raise InputError(f"{option} and {other} contradict each other", hint)


def _read_label_map(pairs: Sequence[str]) -> dict[str, str | None]:
    """The labels of the model by those of the gold; None excludes one. InputError for what is not GOLD=LABEL."""
    split = [pair.partition("=") for pair in pairs]
    if wrong := next(
        (pair for pair, (gold, sign, _) in zip(pairs, split, strict=True) if not (gold and sign)), None
    ):
        raise InputError(f"--label-map takes GOLD=LABEL, not {wrong[:80]!r}", "GOLD= excludes the label")
    return {gold: label or None for gold, _, label in split}
