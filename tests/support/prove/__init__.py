"""Small graphs, the children that quantizers make of them, edits, and an independent judge."""
