"""Pages for people: models, one model, one version, two versions side by side.

`pages` has the routes, `views` makes plain data for the templates, `rendering` fills them, also one for
a difference as one self-contained page. No script, no external files.

Start with `pages.py`.
"""
