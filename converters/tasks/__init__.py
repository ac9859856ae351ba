"""Tasks: a class for each kind of source that can be exported (docs/tasks.md). Start with `task.py`."""
