"""Which settings of a policy suit a trace and an SLO, and is that more than chance?"""
