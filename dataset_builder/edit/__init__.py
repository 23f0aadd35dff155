"""How one thing about a face is changed: one readable file per method."""
