"""One model's log in one registry: read a log, extend it, list the blobs that it refers to, collect the others.

A `Log` is state and lines; `commit` reads a log, changes it and writes it. Start with `log.py`, then `commit.py`. The rules
in words: docs/format.md.
"""
