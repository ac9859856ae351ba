"""The command line as a reference: one description of every verb, and the pages that are made of it."""
