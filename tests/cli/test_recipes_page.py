"""docs/recipes.md: its lists are those of the code."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxreg.converters.engine.foreign import olive_passes
from onnxreg.converters.tasks import task_catalog
from onnxreg.schema.inputs.recipe_file import RecipeFile, RecipeOutput, RecipeStep

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
TEXT = PAGE.read_text("utf-8")


@pytest.mark.parametrize(("name", "table"), [("tasks", task_catalog.table), ("olive", olive_passes.table)])
def test_the_lists_of_the_page_are_generated(name: str, table: Callable[[], str]) -> None:
    shown = TEXT.partition(f"<!-- generated: {name} -->\n")[2].partition("<!-- end -->")[0]
    assert shown == f"\n{table()}\n"


@pytest.mark.parametrize("model", [RecipeFile, RecipeStep, RecipeOutput])
def test_every_key_is_explained(model: Any) -> None:
    for name, field in model.model_fields.items():
        assert f"`{field.alias or name}`" in TEXT
