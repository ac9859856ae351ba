"""Prove from two files that one model is its parent with rounded weights. docs/prove.md has the rules."""
