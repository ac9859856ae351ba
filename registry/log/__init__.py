"""One model's log in one registry: read a log, extend it, and list the blobs that it refers to.

A `Log` is state and lines. `commit` reads a log, changes it and writes it, and starts again after a lost race.
`Replay` applies events by their rules, `contents` lists the files of a version and the blobs that a log
needs, `collect` deletes blobs that no log needs, `lookup` finds versions and reads small blobs.

Start with `log.py`, then `commit.py`. The rules in words: docs/format.md.
Must not import: `trust`, `gates`, `transfer` or anything above them.
"""
