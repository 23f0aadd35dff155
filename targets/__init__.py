"""Models and asking them: adapters, scoring, cards. Sees pictures, never attributes or groups."""
