"""The Graph and what is known of it. In reading order:

dtypes        element types; `elements`: those that are stored as others
ops           primitives and monoids; `meaning`: what each does, in NumPy
graph         nodes, interned (`interned`); `operators` writes arithmetic, `printer` text
build         constructors of nodes, `joining`: of arrays side by side; `verifier` checks by them
interpreter   a Graph run by NumPy; `einsum` for its large products
index         index expressions; `conditions` on them; `views`: what a view does to one
simplify      a Graph made simpler, node by node by the rules in steps/; `limit` shortens sorts
contraction   products recognised by their axes, `transform`: those with a small constant matrix
updates       arrays with a block replaced, as choices
scalars       regions of scalars made elementwise
order         what a sort's comparator means
walks         what can be reached from somewhere
"""
