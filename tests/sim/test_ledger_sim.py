"""Real bookies and real clients on a simulated network, disks and metadata store, seed by seed.

Being written (scenario in ledger/testing/ledger_scenario.py, checks in ledger/testing/history.py).
"""
