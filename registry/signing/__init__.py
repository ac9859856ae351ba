"""How this user signs: the keys, and the one that signs the lines of logs. What a reader believes is in `trust`."""
