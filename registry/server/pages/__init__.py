"""Pages for people, without scripts or external files.

`pages` has a view for each template, `rendering` the filters and a difference as one file, `snippets` lines to copy.
"""
