"""What the scores mean: audits, statistics, records, tables, the gate."""
