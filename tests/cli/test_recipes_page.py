"""docs/recipes.md: its lists are those of the code."""

from pathlib import Path
from typing import Any

import pytest

from onnxreg.converters.tasks import task_catalog
from onnxreg.schema.inputs.recipe_file import RecipeFile, RecipeOutput, RecipeStep

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
TEXT = PAGE.read_text("utf-8")


def test_the_list_of_tasks_is_generated() -> None:
    shown = TEXT.partition("<!-- generated: tasks -->\n")[2].partition("<!-- end -->")[0]
    assert shown == f"\n{task_catalog.table()}\n"


@pytest.mark.parametrize("model", [RecipeFile, RecipeStep, RecipeOutput])
def test_every_key_is_explained(model: Any) -> None:
    for name, field in model.model_fields.items():
        assert f"`{field.alias or name}`" in TEXT
