"""The checks that a reader makes of a registry: no rollback, and the signatures that the user requires.

`KnownHeads` remembers the newest log that the user saw of each model, `CheckedReader` compares every
index file with it, `signatures` checks each signature against the user's trust file, and what that file requires.

Start with `known_heads.py`, then `signatures.py`. The threats: docs/threat-model.md.
Must not import: `gates`, `transfer` or anything above them.
"""
