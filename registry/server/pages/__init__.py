"""Pages for people: `pages` makes them from templates, `rendering` has filters, `snippets` makes the lines to copy."""
