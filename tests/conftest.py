"""Put this folder on the path, so that tests import builder.py by its name."""
