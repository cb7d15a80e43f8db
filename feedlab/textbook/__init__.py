"""The design as the article prints it, kept to be broken in class. Same names and signatures as ours, so that a notebook changes
one import:

    from feedlab import fanout, reader            # ours
    from feedlab.textbook import fanout, reader   # the article's

What is the same in both (schema, posts, outbox, Redis, Kafka) is ours and imported. Each module says which faults of the article
(F1 to F10) it has, and where.
"""
