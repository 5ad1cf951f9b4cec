"""Every call of the API as data: what is sent, and how the answer is read.

The clients differ in how they wait, not in what they say, so what is said stands here once.
"""
