"""Run graphs. `sessions` makes results repeatable. `golden` runs a graph on arrays in a file or on golden vectors."""
