"""Run graphs with repeatable results (`sessions`), on arrays in files and on golden vectors (`golden`)."""
