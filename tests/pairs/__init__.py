"""Every action beside every other one: done up to its commit, another one done whole, then the first committed.

A starting table is built once, and what an action staged is recorded once, with the files that it wrote. A pair is then
a copy of the folder by links and two commits, in which nothing but what is under test runs: the decision of the log.
"""
