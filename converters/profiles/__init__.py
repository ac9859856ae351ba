"""Recipes that come with the program, and those of other packages (entry points): `profile_catalog`."""
