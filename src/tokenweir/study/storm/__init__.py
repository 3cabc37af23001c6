"""What does a spike leave behind when the refused come back?"""
