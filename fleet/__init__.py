"""Drive all boxes from one, over plain ssh.
Acts through hosts/ only.
"""
