"""Documents that people write for the dossier of a version."""
