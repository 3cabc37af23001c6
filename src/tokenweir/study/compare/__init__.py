"""Which of two policies is better on the same requests, and is the difference more than chance?"""
