"""What does one tenant's flood cost its neighbours?"""
