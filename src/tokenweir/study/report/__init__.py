"""How is a study read in a browser, without a network?"""
