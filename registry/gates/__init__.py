"""Rules of channels: policies, promotion with evidence, and the check of every governed read.

`ChannelGate` judges a version by the policy in force, and checks that what a governed channel holds was promoted.
`promotion` sets policies, moves channels and rolls versions out; `statements` puts reports on record.

Start with `enforce.py`, then `promotion.py`. The rules in words: docs/gates.md.
Must not import: `deliver`, `transfer` or anything above them.
"""
