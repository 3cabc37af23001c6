"""Policies x loads x seeds x profiles x traces: who has how much goodput, and how sure is that?"""
