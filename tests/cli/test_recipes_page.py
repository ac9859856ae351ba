"""docs/recipes.md: its lists are those of the code."""

from pathlib import Path
from typing import Any

import pytest

from onnxreg.converters.tasks import task_catalog
from onnxreg.schema.inputs.recipe_file import RecipeFile, RecipeOutput, RecipeStep

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
TEXT = PAGE.read_text("utf-8")


@pytest.mark.parametrize("task", task_catalog.TASKS)
def test_every_task_and_option_is_listed(task: str) -> None:
    (row,) = [line for line in TEXT.splitlines() if line.startswith(f"| `{task}` |")]
    assert [name for name in task_catalog.TASKS[task].Options.model_fields if f"`{name}`" not in row] == []


@pytest.mark.parametrize("model", [RecipeFile, RecipeStep, RecipeOutput])
def test_every_key_is_explained(model: Any) -> None:
    for name, field in model.model_fields.items():
        assert f"`{field.alias or name}`" in TEXT
