"""How queued runs reach workers: the port, and the implementation for one machine.

The ledger decides what is done; a dispatch only says which run is next, and to which worker.
"""
