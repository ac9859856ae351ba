"""The places a registry can live."""
