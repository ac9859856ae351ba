"""The export engine: it makes an `ExportPlan` from a recipe, and a `Draft` from the plan.

`plan` reads the recipe, and finds, hashes and checks every input before anything heavy is loaded. `run_plan` loads the
source, runs each step and describes the results. `measure` compares each graph with its parent, and applies the limits
of the recipe. `cache` keeps results for later runs. The package `families` uses `measure` and `plan` too.

Start with `plan.py`, then `run_plan.py`. Guide to recipes: docs/recipes.md. Must not import: `families`, `importers`.
"""
