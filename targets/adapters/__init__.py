"""One file per model family; nothing here is imported before a target of that family is asked for."""
