"""Pages for people, without scripts or external files.

`pages` makes them from templates, `rendering` has the filters for templates, `snippets` makes the lines to copy.
"""
