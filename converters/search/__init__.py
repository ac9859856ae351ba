"""The search for the smallest artifact that passes. Nothing in `engine` runs a search."""
