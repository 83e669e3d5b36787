"""The databases that can hold the ledger of runs, behind one port."""
