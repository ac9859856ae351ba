"""The checks that a reader makes of a registry: no rollback, and the signatures that the user requires.

`KnownHeads` remembers the newest log that the user saw of each model, `CheckedReader` compares every
index file with it, `requirements` applies the user's trust file, `signatures` checks each signature against
the keys in it.

Start with `known_heads.py`, then `observe.py`. The threats: docs/threat-model.md.
Must not import: `gates`, `transfer` or anything above them.
"""
