"""What a box looks like and what is wrong with it: facts are read, checks judge them.
Nothing here changes the machine.
"""
