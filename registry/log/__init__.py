"""One model's log in one registry: read a log, extend it, list the blobs that it refers to, collect the others.

Start with `log.py`, then `commit.py`, which writes logs. The rules in words: docs/format.md.
"""
