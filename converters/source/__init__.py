"""Find the source files of an export, and facts about them. No module here imports other packages of `converters`."""
