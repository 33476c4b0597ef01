"""The components of this code location, a folder each.

dg scaffold defs tidegate.TidegateComponent NAME     adds one
"""
