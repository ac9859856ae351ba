"""One model's log in one registry: read it, extend it, list the blobs that it needs, delete blobs that no log needs.

Start with `log.py`, then `commit.py`, which writes logs. The rules in words: docs/format.md.
"""
