"""The client for asyncio.

`_sync` is made from this package by `tools/unasync.py`; change this one.
"""
