"""The floor all parts stand on: errors, configuration, tables, extras, hashes, shards, progress."""
