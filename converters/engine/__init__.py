"""The export engine: `plan` makes an `ExportPlan` from a recipe (docs/recipes.md), `run_plan` makes a `Draft` of it."""
