"""A FlashKDA built elsewhere, packed so that an image can take it over or name why it does not fit.
Sources, binaries and build scripts of FlashKDA itself are not part of this kit.
"""
