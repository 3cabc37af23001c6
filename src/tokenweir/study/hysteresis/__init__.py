"""Does goodput come back when overload goes, or does the overload keep itself alive?"""
