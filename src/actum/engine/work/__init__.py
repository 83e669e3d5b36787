"""Work items: one agent's work on a workspace, all of it or nothing (seed 002).

Read `model.py`, `carry.py`, `attempt.py`, `admission.py`; `docs/work-items.md` has the picture.
"""
