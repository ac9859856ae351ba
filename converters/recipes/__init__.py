"""Recipes: a tree of passes over a source, run, measured and described as the draft of a version."""
