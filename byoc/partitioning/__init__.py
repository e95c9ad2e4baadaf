"""Which nodes run on which machine, and why do the others run elsewhere?"""
