"""The statistics: pure functions over arrays with frozen results. Imports nothing of ours.

Cells        `intervals` (the estimates everything starts from), `bootstrap`, `means`, `effects`, `scales`
Groups       `groups` (stacked cells), `contrasts`, `omnibus`, `aggregate`, `families`, `maxt` (cross-check)
Claims       `equivalence`, `planning`, `discovery`, `selection`, `proportions`
Recognition  `error_rates`, `comparisons` (embeddings by blocks), `resampling`, `equitability`
Underneath   `cells` (pairwise deletion), `sandwich` (CR2), `numerics`, `studentized`, `quadrature`

A cluster is a (group, identity) pair as an integer code, made once by the caller. A structure is the pairs of
one (attribute, group) with all their concepts. Undefined numbers are NaN in the arrays and always have a
status and a reason beside them; whoever writes them out turns NaN into null.
"""
