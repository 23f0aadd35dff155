"""Makes the pairs: source faces, edits, detectors, the filter, the published dataset."""
