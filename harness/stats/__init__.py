"""The statistics: pure functions over arrays with frozen results. Imports nothing of ours."""
