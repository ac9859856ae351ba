"""The steps of a workflow of GitHub Actions, as far as they are commands."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

GIVEN_THERE = re.compile(r"\$\{\{.*?\}\}")
"""An expression whose value only GitHub knows."""


@dataclass(frozen=True)
class Step:
    """A script, and the variables that workflow, job and step set for it."""

    script: str
    environment: dict[str, str]


def steps(text: str) -> list[Step]:
    """The scripts of a document in their order; none where it is no workflow."""
    return list(_steps(yaml.safe_load(text), {}))


def _steps(value: Any, environment: dict[str, str]) -> Iterator[Step]:
    if isinstance(value, list):
        for item in value:
            yield from _steps(item, environment)
    elif isinstance(value, dict):
        environment = environment | _variables(value.get("env"))
        if isinstance(value.get("run"), str):
            yield Step(value["run"], environment)
        for item in value.values():
            yield from _steps(item, environment)


def _variables(value: Any) -> dict[str, str]:
    """Those whose values do not come from GitHub as a whole; a directory of GitHub's is the present one."""
    if not isinstance(value, dict):
        return {}
    found = {name: GIVEN_THERE.sub(".", str(each)) for name, each in value.items()}
    return {name: each for name, each in found.items() if each != "."}
