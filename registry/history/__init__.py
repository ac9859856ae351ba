"""What happened to each model: the log of events, how one more is added, and what nothing refers to any more."""
