"""The execution contract of a run: what it holds, how it is resolved, hashed, sealed, checked.

Every decision in this package is a function of its arguments. Nothing here reads the clock, the
environment or randomness (`tests/unit/runs/test_policy_surface.py` proves it).
"""
