"""Pages for people. They load no external files, and need no script but to try a model in the browser.

`pages` makes them from templates, `rendering` has the filters for templates, `snippets` makes the lines to copy.
"""
