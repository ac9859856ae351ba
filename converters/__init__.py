"""From a trained checkpoint to the files that an app runs. Converters return a `Draft`; they know nothing of stores."""
