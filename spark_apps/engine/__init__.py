"""Spark as it is: what its versions and kinds of session do differently, and its Java from Python."""
