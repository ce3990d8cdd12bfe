"""Who is there: providers give hints (DNS-SD, PEERS), verify.py turns a hint into a verified member.
Only a member verified over HTTP counts for anything.
"""
