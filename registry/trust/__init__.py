"""A reader's checks of a registry: no log may go back to an earlier state, and required signatures must be there.

Start with `known_heads.py`, then `signatures.py`. The threats: docs/threat-model.md.
"""
