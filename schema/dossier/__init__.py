"""Documents that people write for the dossier of a version: the table of fields, and the facts that only people can state."""
