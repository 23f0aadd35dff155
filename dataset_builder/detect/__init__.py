"""Detectors: a decision rule over a target's scores, or the generator's own knowledge."""
