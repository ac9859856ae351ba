"""Tasks: a class for each kind of source that can be exported. `task_catalog` lists them, docs/tasks.md explains them.

`checkpoint` has what all transformers checkpoints share; `code` runs functions that make modules. Start with `task.py`,
then `checkpoint.py` and `text.py`. Nothing here imports `engine`, `families` or `importers`.
"""
