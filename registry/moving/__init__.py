"""Versions and their bytes on the way: between registries, out of one into a directory, into a mirror."""
