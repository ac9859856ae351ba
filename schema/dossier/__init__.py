"""Documents that people write for the dossier of a version: the table of its fields, and the facts that only they can state."""
