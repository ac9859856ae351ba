"""The built-in profiles, and those that other packages bring."""
