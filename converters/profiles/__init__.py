"""Recipes that come with the program, and those of other packages (entry points).

`profile_catalog` finds a `Profile` by name, `task_profiles` makes the built-in recipe of each task; the
android profile has a package of its own.

Start with `profile_catalog.py`.
"""
