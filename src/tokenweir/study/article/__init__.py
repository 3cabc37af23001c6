"""Is the article's simulation reproduced, and what do its flaws change?"""
