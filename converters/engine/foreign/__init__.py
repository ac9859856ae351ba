"""Documents of other tools as recipes: Olive workflows, Orchard's `export:` section.

`olive_passes` is the table of passes and parameters; what cannot be carried over is an error that names it.

Start with `olive.py`.
"""
