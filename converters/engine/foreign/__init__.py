"""Documents of other tools as recipes: Olive workflows, Orchard's `export:` section.

`olive_passes` is the table of passes and parameters; anything that cannot be translated is an error that
names it.

Start with `olive.py`.
"""
