"""Run-this-there: local, ssh, docker; one interface.
Used by lab/ and fleet/; knows nothing of vLLM.
"""
