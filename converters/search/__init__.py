"""The search for the smallest artifact that passes. Code in `engine` never starts a search."""
