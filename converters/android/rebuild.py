"""The android profile once more, as a recipe recorded it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from onnxreg.converters.android.export import export_android
from onnxreg.converters.android.options import AndroidOptions
from onnxreg.schema.draft import Draft
from onnxreg.schema.errors import IntegrityError
from onnxreg.schema.manifest import Manifest
from onnxreg.schema.recipe import Recipe

FLOORS = ("min_gold_chars", "min_parent_recall")


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
    asked: dict[str, Any] = dict(recipe.parameters)
    evaluation = asked.get("evaluation", {})
    try:
        return AndroidOptions(
            opset=asked["opset"],
            int8=asked["int8"],
            int8_embeddings=asked["int8_embeddings"],
            rewrite=asked["rewrite"],
            max_seq_length=asked["max_seq_length"]["asked"],
            trust_remote_code=recipe.trust_remote_code,
            eval_suite=suite,
            **{key: evaluation[key] for key in FLOORS if key in evaluation},
        )
    except (KeyError, TypeError) as error:
        raise IntegrityError(f"the recipe is none of the android profile: {error}") from error
