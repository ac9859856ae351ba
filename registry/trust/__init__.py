"""A reader's checks of a registry: no rollback, and the signatures that the user requires.

`KnownHeads` remembers the newest log that the user saw of each model, and `CheckedReader` compares every index
file with the known head. `signatures` checks signatures, and the trust file's requirements for them.

Start with `known_heads.py`, then `signatures.py`. The threats: docs/threat-model.md.
Must not import: `gates`, `transfer` or anything above them.
"""
