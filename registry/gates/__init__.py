"""Rules of channels: policies, promotion with evidence, rollouts, and the check of every governed read.

Start with `enforce.py`, then `promotion.py`. The rules in words: docs/gates.md.
"""
