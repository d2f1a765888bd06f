"""A package, so that no installed package that ships its own `tests` stands before it."""
