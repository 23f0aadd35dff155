"""Where the work of a scoring run is done: on this machine's cores, or on a cluster."""
