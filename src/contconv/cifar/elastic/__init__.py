"""Trained ResNets made continuous and run at other scales inside: what that costs, what it keeps, and beside what."""
