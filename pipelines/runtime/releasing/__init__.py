"""Release, stage, judge and publish the epochs of one INSERT, strictly one after another.

    plan n -> staged files and their row -> verdict -> quarantine commit -> target commit -> plan n+1

Each arrow is one commit that a rerun recognises. A held epoch stays where it is until a person re-releases or discards
it, which is epoch n+1 over the same probe rows. What an epoch is, and where the newest one is in this line, is in
`tidegate.pipelines.runtime.epochs`, which needs no Spark.
"""
