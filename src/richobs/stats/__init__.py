"""Pure functions of arrays: shares of delta, bounds, moments, counts, intervals."""
