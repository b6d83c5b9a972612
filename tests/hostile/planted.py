"""A module that nothing imports but what was told to by a log (:mod:`tests.hostile.watching`)."""
