"""The kinds of index: the interface of a handler, one module a kind, and the registry that finds them."""
