"""Pages for people. They load no external files. Only trying a model in the browser needs a script.

`pages` makes them from templates, `rendering` has the filters for templates, `snippets` makes the lines to copy.
"""
