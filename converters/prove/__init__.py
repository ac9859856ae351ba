"""Prove from two files that a small model is the big one, rounded.

Both graphs are read as formulas, from the outputs backwards. Rewrites that keep the function up to rounding bring them
into one form; then the formulas must be equal, and each stored value of the child must be that of the parent, rounded.

Start with `prove.py`; docs/prove.md has the rules.
"""
