"""A reader's checks of a registry: no rollback, and the signatures that the user requires.

Start with `known_heads.py`, then `signatures.py`. The threats: docs/threat-model.md.
"""
