"""Is all of it there and sound, what does it weigh, and how it is mended."""
