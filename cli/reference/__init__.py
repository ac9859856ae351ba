"""The command line as a reference, made from the help texts by `make generate`.

`verbs` describes every verb with its arguments, options and examples; `pages` writes docs/cli.md and
docs/reg.1. `make check` fails if a page is out of date.

Start with `verbs.py`.
"""
