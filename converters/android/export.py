"""A trained token classifier to the files that mobile kits load."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxreg.converters.android.android_options import AndroidOptions, check_options, recipe_of
from onnxreg.converters.android.android_profile import AndroidContract
from onnxreg.converters.engine.plan import ExportPlan, plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.engine.steps import with_scales
from onnxreg.converters.source.source_files import hub_id
from onnxreg.converters.source.toolchain import require
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.manifest.draft import Draft


def export_android(
    source: str,
    workspace: Path,
    *,
    name: str | None = None,
    options: AndroidOptions | None = None,
    progress: Progress = SILENT,
) -> Draft:
    """Export a checkpoint into `workspace` and return the draft of a version.

    Args:
        source: a checkpoint directory, or a hub id with an optional `@revision`.
        workspace: a fresh directory for everything that is written.
        name: the model's name; the lower-cased hub id if absent.
        progress: gets each step as it begins.

    Raises InputError, NotFoundError or RemoteError for a source or option that cannot be used, ConversionError
    if a graph breaks the profile's contract or is not what was asked for, HostError for a missing extra.
    """
    return execute(order_android(source, name, options or AndroidOptions()), workspace, progress=progress)


def check_here(source: str, options: AndroidOptions) -> None:
    """Raise what `order_android` would for the options, and for a checkpoint on this machine that is not there."""
    check_options(options)
    hub_id(source)


def order_android(
    source: str | None,
    name: str | None,
    options: AndroidOptions,
    evaluation: Mapping[str, Any] | None = None,
    search: Mapping[str, Any] | None = None,
    scales_from: str | None = None,
) -> ExportPlan:
    """The profile's recipe for a source, ready to run.

    Args:
        evaluation: in place of that of the options, in JSON form.
        search: how to find the INT8 file, in JSON form: see `recipe_of`.
        scales_from: the quantized file of a parent release, whose scales the INT8 file takes.
    """
    check_options(options)
    require("torch", "transformers", "onnx", "onnxruntime")
    trusted = options.trust_remote_code
    recipe = recipe_of(options, evaluation, search)
    if scales_from is not None:
        recipe = with_scales(recipe, scales_from)
    return plan_export(recipe, source, name, trust_remote_code=trusted, contract=AndroidContract())
