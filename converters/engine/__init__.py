"""The export engine: it makes an `ExportPlan` from a recipe (`plan`), and a `Draft` from the plan (`run_plan`).

Start with `plan.py`. Guide to recipes: docs/recipes.md.
"""
