"""Rules of channels: policies, promotion with evidence, and the check of every governed read.

`ChannelGate` judges a version by the newest policy, and checks that the version of a governed channel was promoted.
`promotion` sets policies, moves channels and rolls versions out; `statements` puts reports on record.

Start with `enforce.py`, then `promotion.py`. The rules in words: docs/gates.md.
Must not import: `deliver`, `transfer` or anything above them.
"""
