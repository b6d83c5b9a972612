"""A module that nothing imports but what a log has made to do so (:mod:`tests.hostile.watching`)."""
