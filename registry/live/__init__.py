"""What `reg doctor --live` tries at each kind of place."""
