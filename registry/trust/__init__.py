"""What a reader believes: known heads, trusted keys, and what must be signed."""
