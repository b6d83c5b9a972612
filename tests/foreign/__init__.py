"""Engines that know nothing of this package, in an environment of their own, on tables that it publishes."""
