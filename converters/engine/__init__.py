"""The export engine: a recipe becomes an `ExportPlan`, the plan a `Draft`.

`plan` finds, hashes and checks everything before anything heavy is loaded; `run_plan` loads the subject and
runs each step, `measure` compares results with their parents and applies stated limits, `describe` makes the
draft, `latency` times it. `cache` skips what was made before. `families` makes many graphs of one
form with the same comparison, checks, facts and latency.

Start with `plan.py`, then `run_plan.py`. Recipes in words: docs/recipes.md.
Must not import: `families`, `importers`.
"""
