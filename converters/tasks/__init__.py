"""The sources of exports: a class for each kind of source; `task_catalog` lists the classes.

A `Task` finds a source without loading it, loads it when a step needs weights, and says how to measure the outputs.
`checkpoint` has what all transformers checkpoints share, `code` runs factories that the user allows. Start with `task.py`,
then `checkpoint.py` and `text.py`. docs/tasks.md lists all tasks. No module imports `engine`, `families` or `importers`.
"""
