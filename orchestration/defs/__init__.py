"""The components of this code location, a folder each.

dg scaffold defs assets.components.TidegateComponent NAME     adds one
"""
