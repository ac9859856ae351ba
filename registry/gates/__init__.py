"""Gates: the registry's policies, promotion by them, and the check of what a governed channel holds."""
