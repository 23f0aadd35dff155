"""Where source faces come from: one readable file per method."""
