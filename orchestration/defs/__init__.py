"""The components of this code location, a folder each.

dg scaffold defs tidegate.assets.components.TidegateComponent NAME     adds one
"""
