"""The sources of exports: one class for each kind, and `task_catalog` lists them.

A `Task` finds a source without loading it, loads it when a step needs it, and says how its outputs are measured.
`checkpoint` and `torch_weights` load weights and tokenizers safely, `code` runs factories that the user
allows. Start with `task.py`, then `text.py`. All tasks: docs/tasks.md. Must not import: `engine`, `families`, `importers`.
"""
