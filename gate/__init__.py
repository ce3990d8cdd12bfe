"""Is it right, fast and fair: checks with declared bars and verdicts, and the statistics behind them.
Uses client/; never starts or stops a server.
"""
