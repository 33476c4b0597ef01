"""dg scaffold defs tidegate.TidegateComponent NAME     adds one"""
