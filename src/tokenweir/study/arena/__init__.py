"""Who gets served, and how soon, among many tenants of whom a few send most?"""
