"""Rules of channels: policies, promotion with evidence, and the check of every governed read.

`PolicyLog` is the registry's own log of policies, `promote` moves a channel if its rules hold, `enforce`
checks that what a governed channel holds was promoted. `statements` reads and writes attestations.

Start with `enforce.py`, then `promotion.py`. The rules in words: docs/gates.md.
Must not import: `deliver`, `transfer` or anything above them.
"""
