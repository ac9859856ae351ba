"""`reg export`: from a trained checkpoint to a published version."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxreg.cli import exporting, families
from onnxreg.cli.errors import needs
from onnxreg.cli.exported import Request, show_known
from onnxreg.cli.options import Json, NewVersion, Output
from onnxreg.cli.published import announce
from onnxreg.cli.session import Session
from onnxreg.schema.errors import InputError
from onnxreg.schema.ref import Ref
from onnxreg.schema.version import Version

if TYPE_CHECKING:
    from onnxreg.converters.recipes.order import Order

EXAMPLES = (
    "reg export ./checkpoint --profile android --name acme/pii-small",
    "reg export acme/pii-small@main --profile android --eval-suite golden.jsonl --output ./mobile",
    "reg export ./checkpoint --recipe recipe.yaml --name acme/minilm",
    "reg export --recipe family.yaml",
)
ANDROID = "android"
FLAGS = {"int8": True, "int8_embeddings": False, "rewrite": True, "trust_remote_code": False}
"""What the flags are where nobody gives them."""


def command(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            help="A checkpoint directory, or a hub id with optional @revision.", show_default=False
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="A built-in recipe: see `reg profiles list`.", show_default=False)
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="A recipe of your own (YAML or JSON).", show_default=False)
    ] = None,
    name: Annotated[str | None, typer.Option(help="The model's name; without it the hub id.")] = None,
    version: NewVersion = None,
    output: Output = None,
    opset: Annotated[int | None, typer.Option(help="The ONNX opset; android has 18.")] = None,
    int8: Annotated[
        bool, typer.Option(" /--no-int8", help="Make no INT8 artifact.", show_default=False)
    ] = True,
    int8_embeddings: Annotated[
        bool, typer.Option("--int8-embeddings", help="Quantize the embedding tables too.")
    ] = False,
    rewrite: Annotated[
        bool,
        typer.Option(" /--no-rewrite", help="Keep every node as the exporter made it.", show_default=False),
    ] = True,
    max_seq_length: Annotated[int | None, typer.Option(help="The longest sequence, in tokens.")] = None,
    eval_suite: Annotated[
        Path | None, typer.Option(help="Golden fixtures (JSON or JSONL) to certify the INT8 artifact with.")
    ] = None,
    min_gold_chars: Annotated[
        int | None, typer.Option(help="Do not judge a label with fewer gold characters.")
    ] = None,
    min_parent_recall: Annotated[
        float | None,
        typer.Option(
            help="Do not judge a label where the checkpoint's own recall, less its false-alarm rate, is lower."
        ),
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that the checkpoint brings; recorded.")
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Run every step, and keep nothing for the next time.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Export a checkpoint by a profile or a recipe, measure what came out, and publish it in the registry.

    Steps whose inputs, parameters and tools are those of an earlier export are not run again. A verdict of refused or
    unknown is published as such, and is no failure of the export. See docs/recipes.md.

    A recipe with the key `family` is a model family: backbone, heads and detector as one version (docs/families.md).

    With --json: {ref, name, version, digest, manifest, output}; manifest is the document, output a path or null. Of a
    family also {latency: [{graphs, p50_ms, p95_ms, runs, threads, cpu}]}.
    """
    exporting.check_one(profile=profile, recipe=recipe)
    wanted: dict[str, Any] = {
        "opset": opset,
        "int8": int8,
        "int8_embeddings": int8_embeddings,
        "rewrite": rewrite,
        "max_seq_length": max_seq_length,
        "eval_suite": eval_suite,
        "min_gold_chars": min_gold_chars,
        "min_parent_recall": min_parent_recall,
        "trust_remote_code": trust_remote_code,
    }
    about = {"profile": profile, "recipe": recipe, "name": name, **wanted}
    given = {key: value for key, value in about.items() if value is not None and value is not FLAGS.get(key)}
    session: Session = context.obj
    asked = None if version is None else Version.parse(version)
    request = None if no_cache else Request.of(source, **given)
    if output is not None:
        session.check_target(output)
    elif request is not None and show_known(session, request, asked, as_json):
        return
    with needs("export", "reg export"):
        if recipe is not None and (family := families.read(recipe, name)) is not None:
            families.check_options(source, given)
            families.export(session, family, recipe.parent, asked, output, as_json)
            return
        order = _order(source, **given)
        exporting.tell_translation(session, order)
        registry = session.open(create=True)
        with session.steps(as_json) as report:
            published = exporting.publish(registry, order, asked, report, request)
    if output is not None:
        registry.write_out(Ref(published.name, digest=published.digest), output)
    announce(session, published, as_json, output)


def _order(
    source: str | None,
    profile: str | None = None,
    recipe: Path | None = None,
    name: str | None = None,
    trust_remote_code: bool = False,
    **given: Any,
) -> "Order":
    """InputError for an option of the android profile where something else is asked for."""
    if profile == ANDROID:
        from onnxreg.converters.android import AndroidOptions, order_android

        return order_android(source, name, AndroidOptions(**given, trust_remote_code=trust_remote_code))
    if given:
        raise InputError(
            f"--{next(iter(given)).replace('_', '-')} is an option of the profile {ANDROID}",
            "a recipe says such things itself",
        )
    if recipe is None:
        from onnxreg.converters.profiles.catalog import find

        recipe = find(profile or "").document
    return exporting.order_of(recipe, source, name, trust_remote_code)
