"""The export engine: it makes an `ExportPlan` from a recipe, and a `Draft` from the plan.

`plan` reads the recipe, and finds, hashes and checks every input before anything heavy is loaded. `run_plan` loads the
source, runs each step and describes the results. `measure` compares each graph with the one it was made from, and applies
the recipe's limits. `cache` keeps results for later runs. The package `families` uses these comparisons too.

Start with `plan.py`, then `run_plan.py`. Guide to recipes: docs/recipes.md. Must not import: `families`, `importers`.
"""
