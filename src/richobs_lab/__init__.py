"""The laboratory beside the library: the paper's statements, rival learners, sweeps, the arena, the older certified search.

It imports only what richobs makes public or lists for extensions, and reaches the registries by entry points.
"""
