"""The export engine: it makes an `ExportPlan` from a recipe, and a `Draft` from the plan.

`plan` reads the recipe, and finds, hashes and checks every input before anything heavy is loaded. `run_plan` loads the
source, runs each step and describes the results. `measure` compares results with their parents and applies stated limits.
`cache` has results of earlier runs. The package `families` makes several graphs of one model with these comparisons.

Start with `plan.py`, then `run_plan.py`. Recipes in words: docs/recipes.md. Must not import: `families`, `importers`.
"""
