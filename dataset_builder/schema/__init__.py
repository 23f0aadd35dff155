"""The words of the builder as types: taxonomy, pair, verdict. Loads neither torch nor datasets nor PIL."""
