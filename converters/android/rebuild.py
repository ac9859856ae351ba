"""The android profile once more, as a recipe recorded it."""

from collections.abc import Callable
from pathlib import Path

from onnxreg.converters.android.export import export_android
from onnxreg.converters.android.options import AndroidOptions
from onnxreg.schema.draft import Draft
from onnxreg.schema.errors import InputError, IntegrityError
from onnxreg.schema.manifest import Manifest
from onnxreg.schema.reading import count, flag, mapping, number, required
from onnxreg.schema.recipe import Recipe

FLAGS = ("int8", "int8_embeddings", "rewrite")
DEFAULT = AndroidOptions()
"""For recipes that were written before they named the evaluation."""


def rebuild_android(
    manifest: Manifest,
    recipe: Recipe,
    source: str,
    suite: Path | None,
    workspace: Path,
    report: Callable[[str], None],
) -> Draft:
    """Export `source` into `workspace` with the options of the recipe, evaluated on `suite` where there is one."""
    return export_android(
        source,
        workspace,
        name=manifest.name,
        options=options_of(recipe, suite),
        origin=manifest.source,
        report=report,
    )


def options_of(recipe: Recipe, suite: Path | None) -> AndroidOptions:
    """The options that were asked for. IntegrityError where the recipe is not one that this profile wrote."""
    try:
        asked = mapping(recipe.parameters)
        evaluation = mapping(asked.get("evaluation", {}))
        return AndroidOptions(
            opset=count(required(asked, "opset")),
            **{key: flag(required(asked, key)) for key in FLAGS},
            max_seq_length=count(required(mapping(required(asked, "max_seq_length")), "asked")),
            trust_remote_code=recipe.trust_remote_code,
            eval_suite=suite,
            min_gold_chars=count(evaluation.get("min_gold_chars", DEFAULT.min_gold_chars)),
            min_parent_recall=number(evaluation.get("min_parent_recall", DEFAULT.min_parent_recall)),
        )
    except InputError as error:
        raise IntegrityError(f"the recipe is none of the android profile: {error.message}") from error
