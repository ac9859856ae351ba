"""Recipes that come with the program, and those of other packages (entry points).

`profile_catalog` finds a `Profile` by name, the android one too; `task_profiles` makes the built-in recipe of each task.

Start with `profile_catalog.py`.
"""
