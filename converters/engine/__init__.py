"""The export engine: makes an `ExportPlan` from a recipe, and a `Draft` from the plan.

`plan` finds, hashes and checks every input before anything heavy is loaded; `run_plan` loads the subject and runs each
step; `measure` compares results with their parents and applies stated limits; `describe` makes the draft. `cache` skips steps whose results exist. `families` makes several graphs of one model with the same
comparison, checks and facts.

Start with `plan.py`, then `run_plan.py`. Recipes in words: docs/recipes.md. Must not import: `families`, `importers`.
"""
