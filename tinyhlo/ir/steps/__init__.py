"""The steps of `simplify`: what makes a node simpler by a look at its inputs. In reading order:

elementwise   constants, identities (`algebra`, rules for `rewrite`), bounds of integers
views         views of constants, of other views, of arrays side by side
positions     iotas, and what is gathered at positions that are known
reduces       reduces of views and of reduces, sums of one element, short scans
scatters      updates of which each place has one
sorts         sorts of constants
calls         library calls of permuted operands
masked        updates of which a mask takes some back
taken_back    updates of a view that another view takes back
"""
