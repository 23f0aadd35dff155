"""The candidates that ship with the package, and what makes them."""
